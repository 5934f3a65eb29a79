"""Sweeps from Python: each function does the same as the command with its name, and returns a `Result`.

    import search

    result = search.run("space.yaml", trials=32)
    print(result.best.recipe.optimizer.lr, result.best.score)
    result.confirm().winner.interval

The checks and their messages are those of the command, so a message names an option where a function has an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ledger.names import check_name
from ledger.trust import DEBUG
from search.arguments import absolute_uri, check_store, read_seconds
from search.display.terminal import make_console
from search.request import PLACING, SweepRequest, read_changes, read_request
from search.result import Result, choose_page, library_signals
from search.sweep_options import DriverOptions, ReadOptions, ResumeOptions, SweepOptions, load_plugins, takes
from training.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from ledger.folder import SweepFolder
    from search.checks import Check
    from search.display.sweep_display import SweepDisplay
    from search.runner.sweep_run import SweepEnd


@takes(SweepOptions)
def run(options: SweepOptions) -> Result:
    """Search a space: first the baseline, then recipes that the sampler proposes; ASHA stops the worst early.

    Ctrl-C ends the sweep cleanly, and the result has the state `interrupted`. Ray keeps running for the next
    call. A Ray that this process has initialised already is used as it is.

    Raises:
        KeyboardInterrupt: Ctrl-C came before the first trial, or twice.
    """
    console = options.console or make_console()
    _fetch_lost(options)
    display, request = _read(options, console)
    space, settings, home, name = request.space, request.settings, request.storage, options.name
    check_store(settings.tracking_uri, settings.experiment)
    from ledger.folder import new_folder, open_folder

    if options.or_resume and name is not None and (home / name).exists():
        return _resume_same(open_folder(home, name), request, console)
    folder = new_folder(home, name, space.name)
    from ledger.events import WarmStart
    from search.runner.sweep import run_sweep

    opening = [WarmStart(recipes=request.warm_starts)]
    for note in request.notes:
        display.line(note)
    page = choose_page(folder.name, None, "").absolute() if options.follow else None
    with library_signals(), _follow(folder, page, display.line):
        end = run_sweep(folder, space, settings, display, opening, request.preset, page, request.began)
    return _result(end, console, page)


@takes(SweepOptions)
def check(options: SweepOptions) -> Iterator[Check]:
    """Look at everything that `run` with the same arguments needs. No trial is trained, and no file is left.

    Yields:
        The result of each check, also after one that failed.
    """
    load_plugins(options.plugins)
    from search.checks import Checker

    return Checker(read_request(options, (options.console or make_console()).print)).run()


@takes(ResumeOptions)
def resume(options: ResumeOptions) -> Result:
    """Continue an interrupted sweep, on other machines or with another MLflow store if the arguments name them.

    A place that is left out stays as it was, and without `time_budget` the time has no limit. `address="local"` continues
    on this machine. `copy` is the URI that the sweep was copied to, for a machine that does not have its folder; the copy
    goes on there.
    `overrides`, such as `["data.root=NEW/FOLDER"]`, names the new place of images that moved.
    `plugins` gives the files of own techniques again, unchanged: the sweep records a hash of them and no code.

    Raises:
        KeyboardInterrupt: Ctrl-C came before the first trial, or twice.
    """
    load_plugins(options.plugins)
    changes, seconds = read_changes(options), read_seconds(options.time_budget)
    if options.copy is not None:
        from search.copies.place import check_uri, fetch_sweep

        changes["copy_to"] = check_uri("--from", options.copy)
        fetch_sweep(changes["copy_to"], Path(options.storage).absolute() / check_name(options.name))
    from ledger.folder import open_folder

    folder, console = open_folder(Path(options.storage).absolute(), options.name), options.console or make_console()
    if options.overrides:
        from ledger.record import SweepRecord
        from search.display.sweep_display import SweepDisplay
        from search.runner.start.moved_data import move_data

        move_data(SweepRecord.open(folder), options.overrides, SweepDisplay(console).line)
    return _continue(folder, changes, seconds, options.trials or 0, options, console)


@takes(ReadOptions)
def open(options: ReadOptions) -> Result:
    """Open an existing sweep, also while it runs. Weights are not available through a store."""
    load_plugins(options.plugins)
    from ledger.folder import open_folder
    from ledger.record import SweepRecord
    from search.display.sweep_display import SweepDisplay
    from search.runner.start.moved_data import move_data

    uri = None
    if options.tracking_uri is None:
        record = SweepRecord.open(open_folder(Path(options.storage).absolute(), options.name), only_shown=True)
    else:
        from analysis.reading.remote import fetch_record

        uri = absolute_uri(options.tracking_uri)
        if options.overrides:
            raise UserError(f"{options.overrides[0]}: through a store a sweep is only read. Leave --from out.")
        record = fetch_record(uri, check_name(options.name))
    console = options.console or make_console()
    record = move_data(record, options.overrides, SweepDisplay(console).line)
    return Result(record, record.state, 0, console, uri)


def _fetch_lost(options: SweepOptions) -> None:
    """Get the sweep to continue from its copy, where the machine that had its folder is lost."""
    if not (options.or_resume and options.name is not None and options.copy_to is not None):
        return
    from search.copies.place import check_uri, fetch_sweep, has_sweep

    uri = check_uri("--copy-to", options.copy_to)
    folder = Path(options.storage).absolute() / check_name(options.name, "--name")
    if not folder.exists() and has_sweep("--copy-to", uri, options.name):
        fetch_sweep(uri, folder, "--copy-to")


def _read(options: SweepOptions, console: Console) -> tuple[SweepDisplay, SweepRequest]:
    load_plugins(options.plugins)
    from search.display.sweep_display import SweepDisplay

    display = SweepDisplay(console, options.address != DEBUG)
    with display.start():
        return display, read_request(options, display.phase)


def _resume_same(folder: SweepFolder, request: SweepRequest, console: Console) -> Result:
    """Continue the sweep of an earlier `run` with the same arguments, or return it if it is completed."""
    from ledger.record import SweepRecord

    record, space, settings = SweepRecord.open(folder), request.space, request.settings
    # Machines may have narrowed the techniques of the recorded space, so only these parts can be compared.
    parts = {part: (record.space.recipe.get(part), space.recipe.get(part)) for part in ("data", "epochs")}
    for part, (was, now) in {"search": (record.space.search, space.search), **parts}.items():
        if was != now:
            raise UserError(
                f"--or-resume: the sweep {folder.name} exists with another value of {part}. Give the space with which it "
                "was started, or another --name."
            )
    if record.is_done and record.is_delivered:
        return Result(record, "completed", 0, console, had_ended=True)
    names = (*PLACING, "tracking_uri", "copy_to")
    changes = {name: value for name in names if (value := getattr(settings, name)) not in (None, "")}
    changes["address"] = settings.address
    return _continue(folder, changes, settings.time_budget_seconds, 0, request.options, console)


def _continue(
    folder: SweepFolder,
    changes: dict[str, Any],
    seconds: float | None,
    more: int,
    options: DriverOptions,
    console: Console,
) -> Result:
    from ledger.record import SweepRecord
    from search.display.sweep_display import SweepDisplay
    from search.runner.sweep import resume_sweep

    page = None
    if options.follow:
        page = choose_page(folder.name, None, SweepRecord.open(folder, only_shown=True).header.id).absolute()
    display = SweepDisplay(console, options.address != DEBUG)
    with library_signals(), _follow(folder, page, display.line):
        end = resume_sweep(folder, display, seconds, more, changes, page=page)
    return _result(end, console, page)


def _follow(folder: SweepFolder, page: Path | None, say: Callable[[str], None]) -> AbstractContextManager[None]:
    if page is None:
        return nullcontext()
    from search.evaluation.follow import beside
    from training.plugins import list_sources

    return beside(folder, page, [Path(source["file"]) for source in list_sources()], say)


def _result(end: SweepEnd, console: Console, page: Path | None) -> Result:
    if page is not None:
        from search.display.sweep_display import SweepDisplay
        from search.evaluation.report import attach_page

        attach_page(end.record, page, SweepDisplay(console).line)
    facts = end.seconds_left, end.capacity, end.had_ended
    return Result(end.record, end.state, end.undelivered, console, None, *facts)
