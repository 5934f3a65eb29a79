"""Which trial is the best where few validation images give several the same score, and which is the baseline."""

from itertools import pairwise

import numpy as np

from analysis.effects.lead import judge_lead
from analysis.effects.technique_effects import fit_sweep
from analysis.report.findings import describe_baseline
from analysis.report.sweep_data import collect_sweep
from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from ledger.tables import make_tables
from search.evaluation.replications.replication import choose_baseline
from spaces.load import load_space
from tests.analysis.made_up import SPACE, simulate, write


def test_of_equal_scores_the_one_with_the_lower_loss_is_first_in_all_tables_and_all_name_one_baseline(tmp_path):
    (tmp_path / "space.yaml").write_text(SPACE)
    space, random = load_space(tmp_path / "space.yaml"), np.random.default_rng(0)
    events = [
        event.model_copy(update={"score": round(event.score, 1), "metrics": {"val_loss": random.random()}})
        if event.event == "report"
        else event
        for event in simulate(space).events
    ]
    record = SweepRecord.open(SweepFolder(write(tmp_path, "tied", space, events).parent))
    done = [trial for trial in record.trials.ranked() if trial.state == "completed"]
    assert len(done) > len({trial.score for trial in done}) + 3
    for first, second in pairwise(done):
        assert (-first.score, first.kept_loss) < (-second.score, second.kept_loss)
    sweep = make_tables(record)
    assert sweep.completed.trial.tolist() == [trial.number for trial in done]
    baseline = choose_baseline(record)
    assert baseline is next(trial for trial in done if trial.origin == "baseline")
    assert sweep.baselines.trial.iloc[0] == baseline.number
    assert judge_lead(sweep, fit_sweep(sweep)).baseline == baseline.name
    assert sweep.trials.trial.iloc[collect_sweep(sweep).baseline] == baseline.number
    assert f"relative to trial {baseline.name}, the best baseline" in describe_baseline(sweep)
