"""A sweep that is read from MLflow equals its ledger, from a database and from a server."""

import shutil
import sqlite3
from contextlib import closing

import pandas as pd
import pytest

import analysis
from analysis.loading import load
from search.tracking import writer as tracking
from tests.analysis.made_up import send, simulate, write
from training.errors import UserError


def test_the_ledger_of_a_run_gives_the_tables_of_the_folder(space, sweep, tmp_path, monkeypatch, serve_mlflow):
    monkeypatch.setattr(tracking, "FLUSH_SECONDS", 0.02)
    events, uri = simulate(space).events, f"sqlite:///{tmp_path}/mlflow.db"
    send(uri, "made-up-1", space, events, ledger=write(tmp_path, "made-up-1", space, events))
    for place in (uri, f"http://127.0.0.1:{serve_mlflow(uri)}"):
        found = load("made-up-1", place)
        pd.testing.assert_frame_equal(found.trials, sweep.trials)
        pd.testing.assert_frame_equal(found.curves, sweep.curves)
        assert found.state == sweep.state


@pytest.mark.parametrize(
    ("name", "where", "words"),
    [
        ("quick-9", None, "quick-9: no such sweep in .*There are: .*made-up-1"),
        ("quick-9", "sqlite:////nowhere/mlflow.db", "MLflow store sqlite:////nowhere/mlflow.db: no such database"),
        ("quick-9", "http://127.0.0.1:9", "the MLflow server does not answer"),
        ("quick-9", "nonsense://here", "MLflow store nonsense://here: not a database"),
    ],
)
def test_a_wrong_name_or_store_gives_one_sentence(uri, name, where, words):
    with pytest.raises(UserError, match=words) as caught:
        load(name, where or uri)
    assert "\n" not in str(caught.value)


def test_a_database_of_another_version_of_mlflow_names_the_command_that_upgrades_it(uri, tmp_path):
    file = tmp_path / "mlflow.db"
    shutil.copy(uri.removeprefix("sqlite:///"), file)
    with closing(sqlite3.connect(file)) as database:
        database.execute("UPDATE alembic_version SET version_num = '451aebb31d03'")
        database.commit()
    with pytest.raises(UserError, match=rf"of another version of MLflow\. .* mlflow db upgrade sqlite:///{file}$"):
        load("made-up-1", f"sqlite:///{file}")


def test_the_package_loads_a_sweep():
    assert analysis.load is load
    with pytest.raises(AttributeError, match="has no attribute 'laod'"):
        analysis.laod  # noqa: B018
