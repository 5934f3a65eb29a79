"""Signals: the first requests the end, the second and SIGTERM do not wait, and the messages are true."""

import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from search.runner import interrupt
from search.runner.interrupt import Interrupted, hint_resume, interruptible, listen, resumable
from tests.real_sweeps import SWEEP, check_no_processes, environment


@pytest.fixture(autouse=True)
def same_handlers_afterwards():
    before = {number: signal.getsignal(number) for number in interrupt.NAMES}
    yield
    assert {number: signal.getsignal(number) for number in interrupt.NAMES} == before


def receive(number):
    signal.raise_signal(number)


def test_the_first_ctrl_c_only_requests_the_end():
    with interruptible() as request:
        assert not request()
        receive(signal.SIGINT)
        assert request()
        assert not request.is_hurried


def test_the_second_ctrl_c_ends_the_work_at_once_with_exit_code_130():
    with interruptible() as request:
        receive(signal.SIGINT)
        with pytest.raises(Interrupted) as caught:
            receive(signal.SIGINT)
    assert caught.value.exit_code == 130
    assert request.is_hurried


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_work_that_does_not_check_for_signals_is_ended_soon_after_an_urgent_signal(number, code, monkeypatch):
    # Long enough to get from here to the sleep, which it then breaks off.
    monkeypatch.setattr(interrupt, "PATIENCE_SECONDS", 0.5)
    with interruptible() as request:
        receive(number)
        assert request()
        assert request.is_hurried
        with pytest.raises(Interrupted) as caught:
            time.sleep(60)
    assert caught.value.exit_code == code


def test_work_that_ends_by_itself_after_sigterm_is_not_interrupted(monkeypatch):
    monkeypatch.setattr(interrupt, "PATIENCE_SECONDS", 0.01)
    with interruptible() as request:
        receive(signal.SIGTERM)
        with request.held():
            time.sleep(0.05)
    assert request.number == signal.SIGTERM


def test_sigterm_after_ctrl_c_counts_as_sigterm():
    with interruptible():
        receive(signal.SIGINT)
        with pytest.raises(Interrupted) as caught:
            receive(signal.SIGTERM)
    assert caught.value.exit_code == 143


def test_a_protected_write_is_not_interrupted():
    with interruptible() as request, request.held():
        receive(signal.SIGINT)
        receive(signal.SIGINT)
    assert request.is_hurried


def test_a_hangup_that_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible() as request:
            receive(signal.SIGHUP)
            assert not request()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_libraries_that_catch_exceptions_and_ctrl_c_do_not_catch_it():
    assert not issubclass(Interrupted, Exception | KeyboardInterrupt)


@pytest.mark.parametrize(("budget", "limit"), [(None, ""), (600.0, " --time-budget 600s")])
def test_a_sweep_that_is_interrupted_during_a_resume_prints_the_command_to_continue(budget, limit):
    words = rf"ended by SIGTERM\. Continue with: sweep resume mine{limit}$"
    with pytest.raises(Interrupted, match=words), resumable(hint_resume("mine", budget)):
        raise Interrupted(signal.SIGTERM)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_every_command_ends_in_one_sentence_when_a_signal_comes(number, code):
    program = (
        "import os, search.arguments, search.cli.main;"
        f"end = lambda text: os.kill(os.getpid(), {int(number)});"
        "search.arguments.parse_duration = end;"
        "search.cli.main.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "resume", "x", "--time-budget", "1h"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert done.stderr.startswith("sweep: ended by ")
    assert len(done.stderr.splitlines()) == 1


LOSSES = {
    "a callback of a weak reference": "box = type('Box', (), {})(); kept = weakref.ref(box, lambda _: end()); del box",
    "a library that catches everything": "try: end()\nexcept: pass",
    "a library that makes it an error of its own": "try: end()\nexcept BaseException: raise ImportError('broken')",
    "a library that makes another error of that": (
        "try:\n  try: end()\n  except BaseException: raise ImportError('broken')\n"
        "except ImportError: raise RuntimeError('no backend') from None"
    ),
}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_signal_that_python_or_a_library_drops_ends_the_command_all_the_same(loss, number):
    program = (
        "import signal, time, weakref, search.cli.main\n"
        f"def end(): signal.raise_signal({int(number)})\n"
        f"def work():\n{indent(LOSSES[loss])}\n    time.sleep(30)\n"
        "search.cli.main.app = lambda **_: work()\n"
        "search.cli.main.main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 128 + number
    assert done.stderr.splitlines()[-1].startswith("sweep: ended by SIG")


def indent(text):
    return "\n".join(f"    {line}" for line in text.splitlines())


def test_a_clean_up_that_takes_its_time_after_sigterm_is_not_broken_off(tmp_path):
    program = (
        "import signal, time, pathlib, search.cli.main\n"
        "def work():\n"
        f"    try: signal.raise_signal({int(signal.SIGTERM)})\n"
        "    finally: time.sleep(1.5); pathlib.Path('clean').touch()\n"
        "search.cli.main.app = lambda **_: work()\n"
        "search.cli.main.main()"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False, timeout=20)
    assert done.returncode == 143
    assert (tmp_path / "clean").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_library_whose_clean_up_hangs_after_an_urgent_signal_does_not_hold_the_command(number):
    # Ray waits a minute for its servers, which have ended if the signal was for the whole group, as of `timeout`.
    program = (
        "import atexit, signal, time, search.cli.main, search.runner.interrupt\n"
        "search.runner.interrupt.CLEAN_UP_SECONDS = 0.1\n"
        "atexit.register(time.sleep, 60)\n"
        f"search.cli.main.app = lambda **_: signal.raise_signal({int(number)})\n"
        "search.cli.main.main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, timeout=50)
    assert done.returncode == 128 + number


@pytest.mark.parametrize("seconds", [0.2, 0.5, 1.0, 1.7])
def test_a_sweep_whose_terminal_is_closed_at_once_ends_and_leaves_nothing(seconds, tmp_path):
    terminal, its_end = pty.openpty()
    driver = subprocess.Popen(
        ["setsid", "--ctty", *SWEEP, "run", "quick"],
        cwd=tmp_path,
        env=environment(),
        stdin=its_end,
        stdout=its_end,
        stderr=its_end,
    )
    os.close(its_end)
    time.sleep(seconds)
    driver.send_signal(signal.SIGHUP)
    os.close(terminal)
    try:
        assert driver.wait(timeout=30) in (128 + signal.SIGHUP, -signal.SIGHUP)  # the latter before our first line
    finally:
        driver.kill()
    assert list(tmp_path.iterdir()) == []
    check_no_processes(tmp_path)


def test_signals_raise_after_listen():
    before = {number: signal.getsignal(number) for number in interrupt.NAMES}
    try:
        listen()
        with pytest.raises(Interrupted):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
