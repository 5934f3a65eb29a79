"""Sweeps from Python: each function does the same as the command with its name, and returns a `Result`.

    import search

    result = search.run("space.yaml", trials=32)
    print(result.best.recipe.optimizer.lr, result.best.score)
    result.confirm().winner.interval

The checks and their messages are those of the command, so a message names an option where a function has an argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis import EXPERIMENT
from search.arguments import absolute_uri, check_number, check_share, check_store, read_share
from search.request import STORAGE as STORAGE
from search.request import find_address, read_request, read_seconds
from search.result import Result, library_signals, new_console
from training.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from search.checking.checks import Check
    from search.planning.sweep_plan import SweepPlan
    from search.runner.driver import SweepEnd
    from search.storage.folder import SweepFolder
    from spaces.space import Space


def run(
    space: str | Path | None = None,
    overrides: Sequence[str] = (),
    *,
    preset: str | None = None,
    name: str | None = None,
    trials: int | None = None,
    time_budget: str | float | None = None,
    cpus_per_trial: float | str | None = None,
    gpus_per_trial: float | str | None = None,
    address: str | None = None,
    max_concurrent: int | None = None,
    accelerator: str | None = None,
    storage: str | Path = STORAGE,
    tracking_uri: str | None = None,
    experiment: str = EXPERIMENT,
    seed: int = 0,
    warm_start: Iterable[str] = (),
    keep_best: int = 5,
    owner: str | None = None,
    tags: Iterable[str] = (),
    or_resume: bool = False,
    copy_to: str | None = None,
    dashboard: bool = False,
    with_: Iterable[str | Path] = (),
    console: Console | None = None,
) -> Result:
    """Search a space: first the baseline, then recipes that the sampler proposes; ASHA stops the worst early.

    Ctrl-C ends the sweep cleanly, and the result has the state `interrupted`. Ray keeps running for the next
    call. A Ray that this process has initialised already is used as it is.

    Args:
        space: A bundled space (`quick`, `card`, `full`) or a YAML file. None with a preset.
        overrides: Values to set, such as `"epochs=3"`.
        preset: `fast`, `good` or `best`: make the space by the images that an override such as `"data.root=photos"`
            names, by this machine and by the time budget. A few batches are trained for it.
        name: The name of the sweep. Default: the name of the space and a number.
        trials: The number of trials, including the baselines. Default: the number in the space.
        time_budget: The time after which the sweep ends: seconds, or text such as `"2h"`.
        cpus_per_trial: CPUs of each trial; `auto`: as many trials on a machine without GPUs as its memory and CPUs allow.
        gpus_per_trial: GPUs of each trial; may be a fraction. `auto`: as many trials on a GPU as its memory allows.
        address: The head node of a Ray cluster. Default: this machine.
        max_concurrent: The number of trials at the same time. If the cluster has less room, the others wait, and an
            autoscaler sees their demand. Default: as many as there is room for.
        accelerator: The type of GPU that trials need, such as `A100`. Default: any.
        storage: The folder that holds the sweeps.
        tracking_uri: The MLflow store. Default: `MLFLOW_TRACKING_URI`, else a database in this folder.
        experiment: The MLflow experiment.
        seed: The seed of the search; the recipe has its own seed.
        warm_start: Earlier sweeps; this one begins with their best recipes.
        keep_best: The number of completed trials that keep their weights.
        owner: Who runs the sweep, for `sweep list --owner`. Default: the user of this process.
        tags: Texts such as `"team=vision"`, for `sweep list --tag`.
        or_resume: Continue the sweep `name` if it exists, so that a scheduler can start the same call again.
        copy_to: A URI such as `"s3://bucket/sweeps"`, which gets a copy of the ledger and of all checkpoints, so that
            another machine can continue the sweep. The machines of a cluster then need no shared storage.
        dashboard: Serve the dashboard of the sweep on 127.0.0.1 while it runs.
        with_: Python files with techniques, data or backbones of your own; they stay loaded in this process.
        console: A Rich console for progress. Default: the terminal or the notebook.

    Raises:
        UserError: something is wrong with the space, the data, the machines or the store; nothing was made.
        KeyboardInterrupt: Ctrl-C came before the first trial, or twice.
    """
    _load(with_)
    console = console or new_console()
    request = read_request(
        space,
        overrides,
        preset=preset,
        name=name,
        trials=trials,
        time_budget=time_budget,
        cpus_per_trial=cpus_per_trial,
        gpus_per_trial=gpus_per_trial,
        address=address,
        max_concurrent=max_concurrent,
        accelerator=accelerator,
        storage=storage,
        tracking_uri=tracking_uri,
        experiment=experiment,
        seed=seed,
        warm_start=warm_start,
        keep_best=keep_best,
        owner=owner,
        tags=tags,
        or_resume=or_resume,
        copy_to=copy_to,
        say=console.print,
    )
    loaded, settings, home = request.space, request.settings, request.storage
    check_store(settings.tracking_uri, experiment)
    from search.storage.copies import fetch_sweep, has_sweep
    from search.storage.folder import new_folder, open_folder

    is_lost = or_resume and name is not None and settings.copy_to and not (home / name).exists()
    if is_lost and name is not None and has_sweep("--copy-to", settings.copy_to, name):
        fetch_sweep(settings.copy_to, home / name, "--copy-to")  # the machine that had its folder is lost
    if or_resume and name is not None and (home / name).exists():
        changes = _changes(cpus_per_trial, gpus_per_trial, address or "local", settings.tracking_uri)
        folder = open_folder(home, name)
        with _dashboard(folder, console) if dashboard else nullcontext():
            return _resume_same(folder, loaded, changes, settings.time_budget_seconds, console)
    folder = new_folder(home, name, loaded.name)
    from search.core.record import SweepRecord
    from search.followup.warm_start import collect_warm_starts
    from search.planning.settle import settle
    from search.runner.sweep import run_sweep
    from search.storage.events import WarmStart

    opening = [WarmStart(recipes=collect_warm_starts(loaded, map(SweepRecord.open, request.earlier)))]
    for note in request.notes:
        console.print(note)
    with library_signals(), _dashboard(folder, console) if dashboard else nullcontext():
        return _result(run_sweep(folder, loaded, settings, console, opening, settle, request.preset), console)


def check(
    space: str | Path | None = None,
    overrides: Sequence[str] = (),
    *,
    with_: Iterable[str | Path] = (),
    **arguments: Any,
) -> Iterator[Check]:
    """Look at everything that `run` with the same `arguments` needs. No trial is trained, and no file is left.

    Yields:
        The result of each check, also after one that failed.

    Raises:
        UserError: an argument or the space is wrong, so that nothing can be checked.
    """
    _load(with_)
    from search.checking.checks import Checker

    return Checker(read_request(space, overrides, **arguments)).run()


def plan(
    space: str | Path | None = None,
    overrides: Sequence[str] = (),
    *,
    price_per_gpu_hour: float | None = None,
    with_: Iterable[str | Path] = (),
    console: Console | None = None,
    **arguments: Any,
) -> SweepPlan:
    """Train a few batches of some recipes, and forecast what `run` with the same `arguments` will need.

    Args:
        space: A bundled space or a YAML file. None with `preset`.
        overrides: Values to set.
        price_per_gpu_hour: The price of one GPU for one hour.
        with_: Python files with techniques, data or backbones of your own.
        console: A Rich console for progress.
        **arguments: Arguments of `run`.

    Raises:
        UserError: an argument or the space is wrong, or no recipe can be trained here.
        KeyboardInterrupt: Ctrl-C.
    """
    _load(with_)
    check_share("--price-per-gpu-hour", price_per_gpu_hour)
    console = console or new_console()
    request = read_request(space, overrides, say=console.print, **arguments)
    from search.planning.make import make_sweep_plan

    for note in request.notes:
        console.print(note)
    with library_signals():
        return make_sweep_plan(request.space, request.settings, request.storage, price_per_gpu_hour, console)


def resume(
    name: str,
    *,
    storage: str | Path = STORAGE,
    time_budget: str | float | None = None,
    cpus_per_trial: float | str | None = None,
    gpus_per_trial: float | str | None = None,
    address: str | None = None,
    tracking_uri: str | None = None,
    copy: str | None = None,
    dashboard: bool = False,
    with_: Iterable[str | Path] = (),
    console: Console | None = None,
) -> Result:
    """Continue an interrupted sweep, on other machines or with another MLflow store if the arguments name them.

    An argument that is left out keeps its earlier value. `address="local"` continues on this machine. `copy` is the URI
    that the sweep was copied to, for a machine that does not have its folder; the copy goes on there.
    `with_` gives the files of own techniques again, unchanged: the sweep records a hash of them and no code.

    Raises:
        UserError: there is no such sweep, it is completed, or another driver runs it.
        KeyboardInterrupt: Ctrl-C came before the first trial, or twice.
    """
    _load(with_)
    changes = _changes(cpus_per_trial, gpus_per_trial, address, tracking_uri)
    if copy is not None:
        from search.storage.copies import check_uri, fetch_sweep
        from search.storage.names import check_name

        changes["copy_to"] = check_uri("--from", copy)
        fetch_sweep(changes["copy_to"], Path(storage).absolute() / check_name(name))
    return _go_on(name, storage, time_budget, 0, changes, console, dashboard)


def extend(
    name: str,
    trials: int,
    *,
    storage: str | Path = STORAGE,
    time_budget: str | float | None = None,
    cpus_per_trial: float | str | None = None,
    gpus_per_trial: float | str | None = None,
    address: str | None = None,
    tracking_uri: str | None = None,
    dashboard: bool = False,
    with_: Iterable[str | Path] = (),
    console: Console | None = None,
) -> Result:
    """Run `trials` additional trials; the sampler uses the results of all earlier trials.

    The other arguments are those of `resume`.

    Raises:
        UserError: there is no such sweep, or another driver runs it.
        KeyboardInterrupt: Ctrl-C came before the first trial, or twice.
    """
    _load(with_)
    check_number("--trials", trials)
    changes = _changes(cpus_per_trial, gpus_per_trial, address, tracking_uri)
    return _go_on(name, storage, time_budget, trials, changes, console, dashboard)


def open(
    name: str,
    *,
    storage: str | Path = STORAGE,
    tracking_uri: str | None = None,
    experiment: str = EXPERIMENT,
    with_: Iterable[str | Path] = (),
    console: Console | None = None,
) -> Result:
    """Open an existing sweep, also while it runs.

    Args:
        name: The sweep.
        storage: The folder that holds the sweeps.
        tracking_uri: An MLflow store to read the sweep from, where this machine does not have its folder. Its weights
            are then not available.
        experiment: The experiment in that store.
        console: A Rich console. Default: the terminal or the notebook.

    Raises:
        UserError: there is no such sweep, or its ledger is damaged.
    """
    _load(with_)
    if tracking_uri is not None:
        from search.storage.names import check_name
        from search.tracking.remote import fetch_record

        copy = fetch_record(absolute_uri(tracking_uri), experiment, check_name(name))
        return Result(copy, copy.state, 0, console or new_console())
    from search.core.record import SweepRecord
    from search.storage.folder import open_folder

    record = SweepRecord.open(open_folder(Path(storage).absolute(), name))
    return Result(record, record.state, 0, console or new_console())


def _load(files: Iterable[str | Path]) -> None:
    from training.own import load

    load(files)


def _resume_same(
    folder: SweepFolder, space: Space, changes: dict[str, Any], seconds: float | None, console: Console | None
) -> Result:
    """Continue a sweep, or return it if it is completed.

    Raises:
        UserError: the sweep has another space.
    """
    from search.core.record import SweepRecord
    from search.planning.settle import settle
    from search.runner.sweep import resume_sweep

    record = SweepRecord.open(folder)
    # Machines may have narrowed the techniques of the recorded space, so only these parts can be compared.
    for part in ("search", "data", "epochs"):
        was, now = (_read_part(each, part) for each in (record.space, space))
        if was != now:
            raise UserError(
                f"--or-resume: the sweep {folder.name} exists with another value of {part}. Give the space with which it "
                "was started, or another --name."
            )
    console = console or new_console()
    if record.is_done and record.is_delivered:
        return Result(record, "completed", 0, console)
    with library_signals():
        return _result(resume_sweep(folder, console, seconds, changes=changes, settle=settle), console)


def _read_part(space: Space, part: str) -> object:
    return space.search if part == "search" else space.recipe.get(part)


def _changes(
    cpus_per_trial: float | str | None,
    gpus_per_trial: float | str | None,
    address: str | None,
    tracking_uri: str | None,
) -> dict[str, Any]:
    """Return the settings that a resume changes."""
    given: dict[str, Any] = {
        "cpus_per_trial": read_share("--cpus-per-trial", cpus_per_trial),
        "gpus_per_trial": read_share("--gpus-per-trial", gpus_per_trial, or_zero=True),
    }
    if tracking_uri is not None:
        check_store(tracking_uri, EXPERIMENT)
        given["tracking_uri"] = absolute_uri(tracking_uri)
    changes = {name: value for name, value in given.items() if value is not None}
    return changes if address is None else {**changes, "address": find_address(address)}


def _go_on(
    name: str,
    storage: str | Path,
    time_budget: str | float | None,
    more: int,
    changes: dict[str, Any],
    console: Console | None,
    dashboard: bool,
) -> Result:
    seconds = read_seconds(time_budget)
    from search.storage.folder import open_folder

    folder = open_folder(Path(storage).absolute(), name)
    from search.planning.settle import settle
    from search.runner.sweep import resume_sweep

    console = console or new_console()
    with library_signals(), _dashboard(folder, console) if dashboard else nullcontext():
        return _result(resume_sweep(folder, console, seconds, more, changes, settle), console)


def _dashboard(folder: SweepFolder, console: Console | None) -> AbstractContextManager[None]:
    """Serve the dashboard of a sweep while the `with` block runs it."""
    from search.dashboard.serve import beside
    from training.own import list_sources

    return beside(folder, [Path(source["file"]) for source in list_sources()], console or new_console())


def _result(end: SweepEnd, console: Console) -> Result:
    return Result(end.record, end.state, end.undelivered, console)
