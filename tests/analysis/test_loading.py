"""The tables of a sweep are those of its ledger."""

import pytest

from analysis.comparing import compare
from ledger.trials import Trials
from tests.analysis.made_up import simulate


def test_trials_and_curves_equal_those_of_the_ledger(sweep, space):
    recorded = Trials("val_accuracy", simulate(space).events)
    assert len(sweep.trials) == len(recorded)
    rows = sweep.trials.set_index("trial")
    for trial in recorded:
        row = rows.loc[trial.number]
        assert (row.state, row.epochs_done, row.is_baseline) == (trial.state, trial.epoch, trial.origin == "baseline")
        assert row.score == pytest.approx(trial.score)
        assert row.seconds == trial.epoch
        assert row.memory_mb == 300 + trial.number
        assert row.ece == pytest.approx(0.02 + 0.1 / row.best_epoch)
        assert {name: row[name] for name in ("optimizer.lr", "mixup.alpha", "batch_size")} == {
            name: value
            for name, value in trial.recipe.flat().items()
            if name in row.index and name in ("optimizer.lr", "mixup.alpha", "batch_size")
        }
        curve = sweep.curves[sweep.curves.trial == trial.number]
        assert curve.epoch.tolist() == [report.epoch for report in trial.reports]
        assert curve.score.tolist() == pytest.approx([report.score for report in trial.reports])


def test_the_best_of_the_completed_trials_comes_first(sweep, space):
    assert sweep.completed.trial.iloc[0] == Trials("val_accuracy", simulate(space).events).best().number


def test_values_keep_their_types(sweep):
    assert sweep.trials["optimizer.lr"].dtype == float
    assert sweep.trials["batch_size"].dtype == int
    assert sweep.trials["preprocessing.image_size"].notna().all()


def test_the_courses_of_sweeps_that_are_compared_end_at_their_best_scores(storage):
    found = compare(["made-up-1", "made-up-2"], storage=storage)
    assert found.course.index.is_monotonic_increasing
    for name, sweep in found.sweeps.items():
        known = found.course[name].dropna()
        assert known.iloc[-1] == found.best.score[name] == sweep.completed.score.max()
        assert (known.diff().dropna() >= 0).all()
        assert known.iloc[0] < known.iloc[-1]
