"""Which trial is the best where few validation images give several the same score."""

from itertools import pairwise

import numpy as np

from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from ledger.tables import make_tables
from spaces.load import load_space
from tests.analysis.made_up import SPACE, simulate, write


def test_of_equal_scores_the_one_with_the_lower_loss_is_first_in_all_tables(tmp_path):
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
    assert make_tables(record).completed.trial.tolist() == [trial.number for trial in done]
