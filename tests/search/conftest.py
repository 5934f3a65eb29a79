"""Sweeps that really train, but in this process instead of Ray's workers; everything else is the real code."""

from __future__ import annotations

import uuid

import pytest

SPACE = """
format: 1
recipe:
  data: {name: digits, train_size: 64}
  backbone: {name: test_resnet, weights: letters}
  epochs: 2
  batch_size: {choice: [16, 32]}
  unfreeze: {level: {choice: [last, most, full]}}
  label_smoothing: {alpha: {uniform: [0.0, 0.3]}}
  optimizer: {name: momentum, lr: {log_uniform: [0.003, 0.3]}}
search: {trials: 5, scheduler: {name: none}}
"""


def sweep_here(folder, space, settings, console, opening=()):
    """`run_sweep` without Ray and MLflow."""
    from search.core.controller import Controller
    from search.core.record import SweepRecord
    from search.runner.checkpoints import Checkpoints
    from search.runner.driver import SweepEnd
    from search.runner.sweep import create_folder, make_header
    from search.storage.events import DriverStarted
    from search.storage.ledger import Ledger
    from training.train import train

    create_folder(folder, make_header(folder.name, uuid.uuid4().hex, space, settings), *opening)
    controller = Controller(space, Ledger(folder.ledger), seed=settings.seed)
    controller.record(DriverStarted(threads=1))
    controller.subscribe(Checkpoints(folder, controller.trials, settings.keep_best))
    while (trial := controller.next_trial()) is not None:
        number, own = trial.number, folder.trial(trial.number)
        own.mkdir(parents=True)

        def on_report(report, number=number):
            return controller.report(number, report) == "continue"

        train(trial.recipe, own, metric=space.search.metric, on_report=on_report)
    return SweepEnd(SweepRecord(folder, controller.ledger.events), "completed", 0)


@pytest.fixture(scope="session")
def trained_sweep(tmp_path_factory):
    """The folder of a sweep of five trials, three of them baselines."""
    from search.display.tables.columns import make_console
    from search.storage.folder import SweepFolder
    from search.storage.settings import Settings
    from spaces.load import load_space

    home = tmp_path_factory.mktemp("trained")
    (home / "tiny.yaml").write_text(SPACE)
    folder = SweepFolder(home / "sweeps" / "tiny")
    folder.path.parent.mkdir()
    settings = Settings(f"sqlite:///{home}/mlflow.db", "technique-search")
    sweep_here(folder, load_space(home / "tiny.yaml"), settings, make_console())
    return folder


@pytest.fixture
def without_ray(monkeypatch):
    import search.runner.sweep

    monkeypatch.setattr(search.runner.sweep, "run_sweep", sweep_here)
