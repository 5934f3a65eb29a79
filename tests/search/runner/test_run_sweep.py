"""The start of a sweep, without machines and without a store."""

from types import SimpleNamespace

from search.display.tables.columns import make_console
from search.runner import sweep
from search.storage.events import SweepPlanned
from search.storage.folder import SweepFolder
from search.storage.settings import Settings
from spaces.load import load_space

PLANNED = SweepPlanned(
    trials=3, slots=1, seconds=60, seconds_low=50, seconds_high=70, seconds_full=90, memory_mb=800, time=1
)


def test_ledger_and_store_get_the_plan_of_a_new_sweep(tmp_path, monkeypatch):
    space, sent = load_space("quick"), []
    plan = SimpleNamespace(space=space, dataset=None, resolve=lambda recipe: recipe)
    monkeypatch.setattr(sweep, "check_early", lambda *given: None)
    monkeypatch.setattr(sweep, "check_data", lambda space: None)
    monkeypatch.setattr(sweep, "make_plan", lambda *given, **named: plan)
    monkeypatch.setattr(sweep, "_make_tracking", lambda *given: SimpleNamespace(replay=sent.extend))
    monkeypatch.setattr(sweep, "drive", lambda folder, controller, *given: controller.trials.plan)
    folder = SweepFolder(tmp_path / "planned")
    kept = sweep.run_sweep(folder, space, Settings(), make_console(), settle=lambda *given: [PLANNED])
    assert kept == PLANNED
    assert [event.event for event in sent] == ["sweep", "plan"]
