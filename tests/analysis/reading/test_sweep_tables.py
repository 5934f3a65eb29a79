"""A sweep that is read from MLflow equals its ledger, from a database and from a server."""

import subprocess
import sys

import pandas as pd
import pytest

import analysis
from analysis.reading.sweep_tables import load
from search.core.trials import Trials
from tests.analysis.made_up import simulate
from training.errors import UserError


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


def test_a_server_gives_the_same_tables_as_its_database(uri, sweep, serve_mlflow):
    found = load("made-up-1", f"http://127.0.0.1:{serve_mlflow(uri)}")
    pd.testing.assert_frame_equal(found.trials, sweep.trials, check_like=True)
    pd.testing.assert_frame_equal(found.curves, sweep.curves, check_like=True)
    assert found.figures == sweep.figures
    assert sweep.figures["best_val_accuracy"] == sweep.completed.score.iloc[0]


@pytest.mark.parametrize(
    ("name", "where", "words"),
    [
        ("quick-9", None, "quick-9: no such sweep in .*There are: .*made-up-1"),
        ("quick-9", "sqlite:////nowhere/mlflow.db", "--tracking-uri sqlite:////nowhere/mlflow.db: no such database"),
        ("quick-9", "http://127.0.0.1:9", "the server does not answer"),
        ("quick-9", "nonsense://here", "--tracking-uri nonsense://here: not a database"),
    ],
)
def test_a_wrong_name_or_store_gives_one_sentence(uri, name, where, words):
    with pytest.raises(UserError, match=words) as caught:
        load(name, where or uri)
    assert "\n" not in str(caught.value)


def test_the_package_loads_a_sweep_and_imports_nothing_heavy_before():
    assert analysis.load is load
    code = "import sys, analysis; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    with pytest.raises(AttributeError, match="has no attribute 'laod'"):
        analysis.laod  # noqa: B018
