"""Write the report of a running sweep anew again and again, in this process or in one of its own beside the driver."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.events import DriverStarted, TrialEnded, TrialLost, TrialResumed, TrialStarted
from ledger.file import read_events, try_decode
from ledger.folder import SweepFolder
from ledger.formatting import format_score, format_seconds, plural
from ledger.recipe_text import format_counts
from ledger.record import SweepRecord
from ledger.trials import UNFINISHED, Trials
from search.core.pace import describe_left
from training.errors import UserError
from training.process.writable import complete_file

if TYPE_CHECKING:
    from analysis.report.findings import Findings
    from analysis.report.live import Live, Worker
    from ledger.tables import Sweep

ROOT = Path(__file__).resolve().parents[2]  # the folder of the rooms
SECONDS = 20.0  # from one page to the next
LONGEST_END_SECONDS = 300.0  # for the last page, which has pictures
LOOK_SECONDS = 2.0  # between two looks at the lock; a driver that starts Ray again does not have it for an instant
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Follower:
    """Writes the page of a sweep. What follows from the ledger is made only after the ledger has grown."""

    def __init__(self, read: Callable[[], SweepRecord | None], page: Path) -> None:
        """Write to `page` what `read` returns: the sweep, or None as long as it does not exist. A page needs a trial."""
        self.read, self.page = read, page
        self.text, self.known = "", -1  # the page without what changes all the time, and the events that it shows
        self.found: tuple[Findings | None, str] = (None, "")
        self.ended = -1  # the trials that had ended when they were found

    def write(self) -> None:
        """Write the page as the sweep is now."""
        if (record := self.read()) is None or not len(record.trials):
            return
        # Imports take seconds of CPU, which a driver needs while it starts.
        from analysis.report.live import put_live
        from analysis.report.sweep_report import render_live
        from ledger.tables import make_tables

        if len(record.events) != self.known:
            sweep = make_tables(record)
            if (ended := sum(trial.ended is not None for trial in record.trials)) != self.ended:
                self.found, self.ended = find_if_any(record, sweep), ended
            findings, problem = self.found
            findings = findings and replace(findings, sweep=sweep)  # with the running trials as they are now
            self.text, self.known = render_live(sweep, findings, problem), len(record.events)
        write_page(self.page, put_live(self.text, describe_live(record), SECONDS))

    def run(self, wait: Callable[[float], bool]) -> None:
        """Write the page every 20 seconds, until `wait`, which gets the seconds to wait, returns True."""
        is_over = False
        while not is_over:
            self.write()
            is_over = wait(SECONDS if self.text else LOOK_SECONDS)


def describe_live(record: SweepRecord) -> Live:
    """Return what the ledger says now about state, progress and workers."""
    from analysis.report.live import Live

    trials, now = record.trials, time.time()
    drivers = [place for place, event in enumerate(record.events) if isinstance(event, DriverStarted)]
    since = record.events[drivers[-1] :] if drivers else []
    driver = record.driver if since else None
    budget = record.recorded_settings.time_budget_seconds
    # A resume may have another time budget, which the ledger does not have.
    budget_left = since[0].time + budget - now if len(drivers) == 1 and budget else None
    left = describe_left(list(trials), record.budget, driver.slots if driver else 1, budget_left, now)
    last = record.events[-1].time if record.events else now
    machine = ""
    if driver:
        gpus = f" and {driver.gpus:g} GPU" if driver.gpus else ""
        machine = f"{plural(driver.threads, 'CPU thread')}{gpus} for each trial, driver on {driver.host}"
    return Live(
        name=record.name,
        state="Running" if driver else "The first trial is being prepared",
        done=sum(trial.state not in UNFINISHED for trial in trials),
        budget=record.budget,
        counts=format_counts(trials) or "none has started",
        elapsed=format_seconds(trials.elapsed_seconds + (now - last if driver else 0.0)),
        time_left=left or "the time left is not known yet",
        machine=machine,
        workers=_list_workers(since, trials, driver.slots if driver else 0),
    )


def _list_workers(since: list, trials: Trials, slots: int) -> list[Worker]:
    """Return a worker for each place. A trial keeps its place, and a new one gets the first that is free."""
    from analysis.report.live import Worker

    places: dict[int, int] = {}
    for event in since:
        if isinstance(event, TrialStarted | TrialResumed):
            places[event.trial] = min(set(range(len(places) + 1)) - set(places.values()))
        elif isinstance(event, TrialEnded | TrialLost):
            places.pop(event.trial, None)
    workers = [Worker()] * max([slots, *(place + 1 for place in places.values())])
    for number, place in places.items():
        trial = trials.by_number[number]
        workers[place] = Worker(trial.name, trial.epoch, trial.epochs, format_score(trials.metric, trial.score))
    return workers


def find_if_any(record: SweepRecord, sweep: Sweep) -> tuple[Findings | None, str]:
    """Return the findings of a sweep, or None and the reason why there are none yet."""
    from analysis.report.findings import find

    if made := record.replication:
        return None, f"This sweep is a replication of {made.of}. This writes its results: sweep {made.kind} {made.of}"
    try:
        return find(sweep), ""
    except UserError as error:
        return None, str(error)


def write_page(page: Path, text: str) -> None:
    """Replace the page as a whole, so that a browser never loads half of it."""
    with complete_file("--out", page) as path:
        path.write_text(text, encoding="utf-8")


def write_last(record: SweepRecord, page: Path) -> None:
    """Write the report of a sweep that has ended, also of one without findings."""
    from analysis.report.sweep_report import render_plain, render_report
    from ledger.tables import make_tables

    sweep = make_tables(record)
    findings, problem = find_if_any(record, sweep)
    write_page(page, render_report(findings) if findings else render_plain(sweep, problem))


def read_folder(folder: SweepFolder) -> Callable[[], SweepRecord | None]:
    """Return a function that returns a sweep as it is then; each line of the ledger is decoded once."""
    latest: SweepRecord | None = None
    known, read_line = (0, 0), cache(try_decode)

    def read() -> SweepRecord | None:
        nonlocal latest, known
        status = folder.ledger.stat() if folder.ledger.exists() else None
        if status and (now := (status.st_mtime_ns, status.st_size)) != known:
            events = read_events(folder.ledger, folder.is_copy, set(), read_line)
            latest, known = SweepRecord(folder, list(events)), now
        return latest

    return read


def follow_to_end(
    record: SweepRecord, reread: Callable[[], SweepRecord], page: Path, say: Callable[[str], None]
) -> None:
    """Write the page of a sweep as long as a driver runs it; `reread` reads a sweep of another machine again."""
    folder, latest = record.folder, [record]

    def read_again() -> SweepRecord:
        latest[0] = reread()
        return latest[0]

    def wait(seconds: float) -> bool:
        if folder.is_copy:
            time.sleep(seconds)
            return latest[0].state != "running"
        missed, until = 0, time.monotonic() + seconds
        while time.monotonic() < until or missed:
            time.sleep(LOOK_SECONDS)
            missed = 0 if folder.is_running() else missed + 1
            if missed > 1:
                return True
        return False

    if record.state == "running":
        say(f"Page: {page}, written anew until the sweep has ended. Ctrl-C ends this command alone.")
        Follower(read_again if folder.is_copy else read_folder(folder), page).run(wait)


@contextmanager
def beside(folder: SweepFolder, page: Path, files: Sequence[Path], say: Callable[[str], None]) -> Iterator[None]:
    """Write the page of a sweep in a process of its own while the `with` block runs it; `files` have own techniques.

    The process reads from a pipe that this one holds, so it sees the end of the block, and the end of this process. It
    then writes the last page.
    """
    # -P: the user's folder may have a package that is called `search`.
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from search.evaluation.follow import main; main()"
    command = [sys.executable, "-P", "-c", program, str(folder.path), str(page), *map(str, files)]
    say(f"Page: {page}, from the first trial on; it is written anew while the sweep runs.")
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for the sweep alone, which may take a while to end
        env={**os.environ, **ONE_THREAD, "PYTHONWARNINGS": "ignore"},
    )
    try:
        yield
    finally:
        try:
            problem = child.communicate(timeout=LONGEST_END_SECONDS)[1]  # closes the pipe
        except subprocess.TimeoutExpired:
            child.kill()
            problem = f"it took more than {LONGEST_END_SECONDS:.0f} seconds"
        if child.returncode:
            *_, reason = problem.strip().splitlines() or ["no reason is known"]
            say(f"! The page {page} is not the last one: {reason}")


def _follow_for_parent(folder: SweepFolder, page: Path) -> None:
    """Write the page until the parent ends, or says so by the end of standard input; then the last page."""
    over = threading.Event()

    def end_after_parent() -> None:
        os.read(0, 1)  # the parent holds the other end of this pipe, and writes nothing
        over.set()

    threading.Thread(target=end_after_parent, daemon=True).start()
    follower = Follower(read_folder(folder), page)
    while not over.is_set():
        with suppress(UserError):  # a disk that is full now may have room later
            follower.run(over.wait)
        over.wait(LOOK_SECONDS)
    if folder.ledger.is_file() and len((record := SweepRecord.open(folder, only_shown=True)).trials):
        write_last(record, page)


def main() -> None:
    """Follow the sweep of the folder in the arguments; the others are its page, and files with own techniques."""
    from training.plugins import load

    os.nice(10)  # trials come first
    folder, page, *files = sys.argv[1:]
    load(files)
    try:
        _follow_for_parent(SweepFolder(Path(folder)), Path(page))
    except UserError as error:
        sys.exit(str(error))
