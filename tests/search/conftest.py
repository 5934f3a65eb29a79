"""Sweeps that really train, with the real driver, but in this process instead of Ray's workers, and without MLflow."""

from __future__ import annotations

import shutil
from typing import ClassVar

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


PLUGIN = """
from training.contract.technique import Technique

class Hum(Technique):
    strength: float = 0.0

    def apply(self, setup):
        pass
"""


class NoStore:
    """Accepts a sweep's events, as for an MLflow store that does not answer."""

    run_ids: ClassVar[dict] = {}
    own_run = None

    def __call__(self, *_):
        pass

    start = wait_ready = replay = __call__

    def close(self, state, at_most_seconds=0.0):
        return 1  # event that did not arrive


def prepare_here(self):
    """Prepare a sweep without Ray, in place of `Preparation.run`."""
    from search.runner.executor import run_here
    from search.runner.machines.capacity import Capacity, Demand
    from search.runner.machines.cluster import this_machine
    from search.runner.start.prepare import PreparedSweep

    self.tracking.start()
    self.tracking.wait_ready()
    capacity = Capacity(Demand(1, 0), [this_machine()], most=1)
    return PreparedSweep(self.space, capacity, lambda recipe: recipe, {}, None, execute=run_here)


class TrainsHere:
    """The last trainings of `LastWorkers`, one after the other in this process."""

    def __init__(self, record, capacity, say, **more):
        self.folder, self.metric, self.recipes = record.folder.path / "final", record.trials.metric, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    @property
    def running(self):
        return len(self.recipes)

    def has_room(self):
        return not self.recipes

    def start(self, name, recipe):
        self.recipes[name] = recipe

    def wait(self):
        from search.evaluation.last_workers import Trained, train_last
        from training.recipe import read_recipe

        name, recipe = self.recipes.popitem()
        values, *more = train_last(recipe.model_dump(), str(self.folder), self.metric, 1, 0, False)
        return name, Trained(read_recipe(values), *more)


@pytest.fixture(scope="session")
def trained_sweep(tmp_path_factory):
    """The folder of a sweep of five trials, three of them baselines; the last is the best, with some techniques on."""
    from ledger.folder import SweepFolder
    from ledger.settings import Settings
    from search.display.sweep_display import SweepDisplay
    from search.display.terminal import make_console
    from search.runner.sweep import run_sweep
    from spaces.load import load_space

    home = tmp_path_factory.mktemp("trained")
    (home / "tiny.yaml").write_text(SPACE)
    folder = SweepFolder(home / "sweeps" / "tiny")
    folder.path.parent.mkdir()
    settings = Settings(f"sqlite:///{home}/mlflow.db", "technique-search", seed=1)
    with pytest.MonkeyPatch.context() as patch:
        leave_out_ray(patch)
        leave_out_store(patch)
        run_sweep(folder, load_space(home / "tiny.yaml"), settings, SweepDisplay(make_console()))
    return folder


@pytest.fixture
def home(trained_sweep, tmp_path, monkeypatch):
    """A working folder with the trained sweep in it."""
    shutil.copytree(trained_sweep.path.parent, tmp_path / "sweeps")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def without_ray(monkeypatch):
    leave_out_ray(monkeypatch)


@pytest.fixture
def without_store(monkeypatch):
    leave_out_store(monkeypatch)


def leave_out_ray(patch):
    """Let the trials of sweeps run in this process."""
    from search.evaluation import last_trainings
    from search.runner.start.prepare import Preparation

    patch.setattr(Preparation, "run", prepare_here)
    patch.setattr(last_trainings, "LastWorkers", TrainsHere)


def leave_out_store(patch):
    """Log nothing to MLflow."""
    import search.runner.sweep

    patch.setattr(search.runner.sweep, "Tracking", lambda *_, **__: NoStore())


@pytest.fixture
def plugin(tmp_path):
    """A file with the technique `hum`, which is not loaded."""
    from training import plugins

    (tmp_path / "hum.py").write_text(PLUGIN)
    yield tmp_path / "hum.py"
    plugins.forget()


@pytest.fixture
def request_of_a_plugin(plugin):
    """A line that asks for a recipe with that technique, as a command that has loaded it writes it."""
    from ledger.events import TrialAdded, encode
    from training import plugins
    from training.recipe import read_recipe

    plugins.load([plugin])
    line = encode(TrialAdded(request="a", recipe=read_recipe({"hum": {"strength": 0.5}})))
    plugins.forget()
    return line
