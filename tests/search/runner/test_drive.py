"""The end of a driver: the ledger, the display and the last sentence, with simulated workers."""

import re
import shutil
import signal
import time
from contextlib import suppress
from typing import ClassVar

import pytest

from ledger.events import RunOpened
from ledger.file import Ledger, read_events
from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from ledger.settings import Settings
from search.core.controller import Controller
from search.display.sweep_display import SweepDisplay
from search.display.terminal import make_console
from search.runner import sweep_run
from search.runner.interrupt import Interrupted
from search.runner.machines.capacity import Capacity, Demand
from search.runner.machines.cluster import Node
from search.runner.start.prepare import PreparedSweep
from search.runner.sweep import create_folder, make_header
from search.runner.sweep_run import SweepRun
from spaces.load import load_space
from training.errors import UserError

WAY_ON = r"Continue with: sweep resume mine --storage \S+$"


class Tracking:
    """Records how it was closed."""

    run_ids: ClassVar[dict] = {}
    closed = None
    own_run = RunOpened(run="abc", experiment="7")

    def __call__(self, event):
        pass

    def close(self, state, timeout_seconds=60.0, at_most_seconds=float("inf")):
        self.closed = state, at_most_seconds
        return 0


@pytest.fixture
def drive(tmp_path):
    """Runs a driver over `tune(controller, should_stop, leave)` in place of Ray."""
    folder, space = SweepFolder(tmp_path / "mine"), load_space("quick")
    create_folder(folder, make_header("mine", "1", space, Settings()))

    def run(tune, **settings):
        run.execute = lambda work: tune(work.controller, work.should_stop, work.leave)
        controller, tracking = Controller(space, Ledger(folder.ledger)), Tracking()
        controller.subscribe(tracking)
        prepared = PreparedSweep(
            space,
            Capacity(Demand(1, 0), [Node("a", "here", 2, 0)]),
            resolve=lambda recipe: recipe,
            seconds={},
            dataset=None,
            execute=run.execute,
        )
        run.tracking = tracking
        display, given = SweepDisplay(make_console()), Settings("", "", **settings)
        return SweepRun(folder, controller, given, prepared, tracking, display, time.monotonic()).run()

    run.folder = folder
    return run


def test_a_request_with_a_plugin_that_the_driver_does_not_have_is_set_aside_and_the_sweep_goes_on(
    drive, request_of_a_plugin, caplog
):
    seen = []

    def tune(controller, should_stop, leave):
        controller.next_trial()
        drive.folder.requests.mkdir()
        for number in range(2):  # the second one is read when the trials have ended
            (drive.folder.requests / f"{number}.json").write_bytes(request_of_a_plugin)
            seen.append(number or should_stop())

    drive(tune)
    assert seen == [False, 1]
    assert caplog.text.count("is not a request that this driver can read, so it was set aside. For a recipe with") == 2
    assert sorted(path.name for path in drive.folder.requests.iterdir()) == ["0.unreadable", "1.unreadable"]
    record = SweepRecord.open(drive.folder)
    assert (record.driver.plugins, record.added_since) == ((), 0)


def start_two(controller):
    controller.next_trial()
    controller.next_trial()


def states(folder):
    return [trial.state for trial in SweepRecord.open(folder).trials], list(read_events(folder.ledger))[-2].state


def test_after_sigterm_the_driver_ends_before_the_workers_have_ended(drive):
    def tune(controller, should_stop, leave):
        start_two(controller)
        signal.raise_signal(signal.SIGTERM)
        assert should_stop()
        leave()
        raise AssertionError("waited for its workers")

    with pytest.raises(Interrupted, match=WAY_ON) as caught:
        drive(tune)
    assert caught.value.exit_code == 143
    assert states(drive.folder) == (["interrupted"] * 2, "interrupted")
    assert drive.tracking.closed[0] == "interrupted"
    assert drive.tracking.closed[1] < 3


def test_the_first_ctrl_c_writes_the_ledger_before_it_waits_for_the_workers(drive, capsys):
    def tune(controller, should_stop, leave):
        start_two(controller)
        signal.raise_signal(signal.SIGINT)
        assert should_stop()
        leave()
        assert [trial.state for trial in controller.trials] == ["interrupted"] * 2

    assert drive(tune).state == "interrupted"
    assert states(drive.folder) == (["interrupted"] * 2, "interrupted")
    assert "Press it again" in capsys.readouterr().out


def test_a_request_to_stop_ends_the_sweep(drive):
    def tune(controller, should_stop, leave):
        start_two(controller)
        assert not should_stop()
        drive.folder.stop_request.touch()
        assert should_stop()
        leave()

    assert drive(tune).state == "interrupted"
    assert states(drive.folder) == (["interrupted"] * 2, "interrupted")


@pytest.mark.parametrize("blocked", [False, True])
def test_a_sweep_whose_folder_is_removed_ends_with_its_ledger_or_with_exit_code_1(drive, blocked):
    def tune(controller, should_stop, leave):
        start_two(controller)
        shutil.rmtree(drive.folder.path)
        if blocked:
            drive.folder.path.touch()
        with suppress(OSError):
            controller.next_trial()
        assert should_stop()
        leave()

    words = "cannot be written again" if blocked else f"has been written again.*{WAY_ON}"
    with pytest.raises(UserError, match=f"mine/ledger.jsonl was removed while the sweep ran, and {words}") as caught:
        drive(tune)
    assert caught.value.exit_code == (1 if blocked else 2)
    assert drive.tracking.closed[0] == "interrupted"
    if not blocked:
        assert [trial.state for trial in SweepRecord.open(drive.folder).trials] == ["interrupted"] * 3


def test_a_time_budget_does_not_follow_the_clock_of_the_machine(drive, monkeypatch):
    def tune(controller, should_stop, leave):
        start_two(controller)
        monkeypatch.setattr(
            "time.time", lambda now=time.time: now() + 7200
        )  # summer time, or a correction of the clock
        assert not should_stop()
        monkeypatch.setattr("time.monotonic", lambda now=time.monotonic: now() + 7200)
        assert should_stop()
        leave()

    end = drive(tune, time_budget_seconds=3600)
    assert end.state == "time_budget"
    assert [trial.reason for trial in end.record.trials] == ["the time budget was spent"] * 2


@pytest.mark.parametrize(
    ("seconds", "has_best", "is_stopped", "follow"),
    [(60, True, False, True), (None, True, False, False), (60, False, False, False), (60, True, True, False)],
)
def test_a_sweep_keeps_its_room_on_the_cluster_only_for_last_trainings(
    drive, monkeypatch, seconds, has_best, is_stopped, follow
):
    left = []
    monkeypatch.setattr(Capacity, "close", lambda capacity: left.append(capacity))

    def tune(controller, should_stop, leave):
        monkeypatch.setattr(sweep_run, "run_on_ray", drive.execute)
        monkeypatch.setattr(type(controller.trials), "best", lambda trials: has_best or None)
        if is_stopped:
            signal.raise_signal(signal.SIGINT)
        else:
            monkeypatch.setattr(type(controller), "is_done", True)

    end = drive(tune, time_budget_seconds=seconds)
    assert (end.capacity is not None) is follow
    assert len(left) == (not follow)


@pytest.mark.parametrize(
    ("origin", "state", "late", "is_over"),
    [
        ("baseline", "running", 100, True),
        ("probe", "running", 100, False),
        ("probe", "completed", 100, True),
        ("probe", "running", 3700, True),  # as much time again
    ],
)
def test_a_linear_probe_may_end_after_the_time_if_there_is_no_other_model(
    drive, monkeypatch, origin, state, late, is_over
):
    def tune(controller, should_stop, leave):
        start_two(controller)
        clock, probe = time.monotonic, controller.trials.by_number[0]
        probe.origin, probe.state = origin, state
        monkeypatch.setattr("time.monotonic", lambda: clock() + 3600 + late)
        assert should_stop() is is_over
        probe.state = "running"
        monkeypatch.setattr("time.monotonic", lambda: clock() + 7300)
        leave()

    end = drive(tune, time_budget_seconds=3600)
    assert end.state == "time_budget"
    assert end.seconds_left is None  # nothing is trained once more


def test_trials_that_ended_for_a_last_training_get_no_time_back_when_it_does_not_fit_any_more(drive, monkeypatch):
    kept = iter([100.0])  # of 60 s; then a last training would take too long

    def tune(controller, should_stop, leave):
        start_two(controller)
        monkeypatch.setattr(sweep_run, "keep_for_end", lambda *_: next(kept, 0.0))
        assert should_stop()
        leave()

    end = drive(tune, time_budget_seconds=60)
    assert end.state == "time_budget"  # so the last training is tried, with the grace
    assert {trial.reason for trial in end.record.trials} == {"the time budget was spent"}


def test_after_a_second_ctrl_c_no_trial_is_running(drive, capsys):
    def tune(controller, should_stop, leave):
        start_two(controller)
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted, match=WAY_ON) as caught:
        drive(tune)
    assert caught.value.exit_code == 130
    assert states(drive.folder) == (["interrupted"] * 2, "interrupted")
    shown = capsys.readouterr().out
    assert "interrupted 2" in shown
    assert "running" not in shown


def test_after_an_error_in_the_program_the_ledger_is_true_and_the_message_has_the_command_to_continue(drive):
    def tune(controller, should_stop, leave):
        start_two(controller)
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug") as caught:
        drive(tune)
    (note,) = caught.value.__notes__
    assert re.search(f"This is an error in the program. All earlier results are kept. {WAY_ON}", note)
    assert states(drive.folder) == (["interrupted"] * 2, "interrupted")


def test_no_trial_of_a_sweep_with_a_killed_driver_is_running(drive):
    controller = Controller(load_space("quick"), Ledger(drive.folder.ledger))
    start_two(controller)
    assert [trial.state for trial in SweepRecord.open(drive.folder).trials] == ["interrupted"] * 2
    with drive.folder.locked():
        assert [trial.state for trial in SweepRecord.open(drive.folder).trials] == ["running"] * 2
