"""Sweeps from Python: each function does the same as the command with its name, and returns a `Result`.

    import search

    result = search.run("space.yaml", trials=32)
    print(result.best.recipe.optimizer.lr, result.best.score)
    result.confirm().winner.interval

The checks and their messages are those of the command, so a message names an option where a function has an argument.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis import EXPERIMENT, TRACKING_URI
from search.arguments import (
    LARGEST_SEED,
    absolute_paths,
    absolute_uri,
    check_number,
    check_share,
    check_store,
    parse_duration,
    parse_tags,
)
from search.result import Result, library_signals, new_console
from search.storage.secrets import URI
from training.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from search.runner.driver import SweepEnd
    from search.storage.folder import SweepFolder
    from spaces.space import Space

STORAGE = Path("sweeps")


def run(
    space: str | Path,
    overrides: Sequence[str] = (),
    *,
    name: str | None = None,
    trials: int | None = None,
    time_budget: str | float | None = None,
    cpus_per_trial: float | None = None,
    gpus_per_trial: float | None = None,
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
    with_: Iterable[str | Path] = (),
    console: Console | None = None,
) -> Result:
    """Search a space: first the baseline, then recipes that the sampler proposes; ASHA stops the worst early.

    Ctrl-C ends the sweep cleanly, and the result has the state `interrupted`. Ray keeps running for the next
    call. A Ray that this process has initialised already is used as it is.

    Args:
        space: A bundled space (`quick`, `card`, `full`) or a YAML file.
        overrides: Values to set, such as `"epochs=3"`.
        name: The name of the sweep. Default: the name of the space and a number.
        trials: The number of trials, including the baselines. Default: the number in the space.
        time_budget: The time after which the sweep ends: seconds, or text such as `"2h"`.
        cpus_per_trial: CPUs of each trial.
        gpus_per_trial: GPUs of each trial; may be a fraction.
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
        with_: Python files with techniques, data or backbones of your own; they stay loaded in this process.
        console: A Rich console for progress. Default: the terminal or the notebook.

    Raises:
        UserError: something is wrong with the space, the data, the machines or the store; nothing was made.
        KeyboardInterrupt: Ctrl-C came before the first trial, or twice.
    """
    _load(with_)
    check_share("--cpus-per-trial", cpus_per_trial)
    check_share("--gpus-per-trial", gpus_per_trial, or_zero=True)
    check_number("--max-concurrent", max_concurrent)
    check_number("--trials", trials)
    check_number("--seed", seed, least=0, most=LARGEST_SEED)
    check_number("--keep-best", keep_best)
    seconds = _seconds(time_budget)
    named_tags = parse_tags(tags)
    if or_resume and name is None:
        raise UserError("--or-resume: give the name of the sweep with --name, or leave --or-resume out.")
    if accelerator is not None and _find_address(address) is None:
        raise UserError(
            f"--accelerator={accelerator}: it chooses among the machines of a cluster. Give --address too, or leave it out."
        )
    from search.runner.early_checks import leave_out_noise
    from search.storage.folder import new_folder, open_folder
    from search.storage.names import check_name

    home = Path(storage).absolute()
    if name is not None:
        check_name(name, "--name")
    earlier = [open_folder(home, sweep, "--warm-start") for sweep in warm_start]
    if tracking_uri is None:
        tracking_uri = os.environ.get(URI, TRACKING_URI)
    check_store(tracking_uri, experiment)
    from spaces.load import load_space
    from spaces.reading.known_backbones import check_backbones

    sized = [*overrides, f"search.trials={trials}"] if trials is not None else list(overrides)
    loaded = absolute_paths(load_space(space, sized))
    check_backbones(loaded.recipe)
    loaded, notes = leave_out_noise(loaded)
    if or_resume and name is not None and (home / name).exists():
        changes = _changes(cpus_per_trial, gpus_per_trial, address or "local", tracking_uri)
        return _resume_same(open_folder(home, name), loaded, changes, seconds, console)
    folder = new_folder(home, name, loaded.name)
    from search.core.record import SweepRecord
    from search.followup.warm_start import collect_warm_starts
    from search.runner.sweep import run_sweep
    from search.storage.events import WarmStart
    from search.storage.settings import Settings

    opening = [WarmStart(recipes=collect_warm_starts(loaded, map(SweepRecord.open, earlier)))]
    settings = Settings(
        absolute_uri(tracking_uri),
        experiment,
        seed,
        keep_best,
        cpus_per_trial,
        gpus_per_trial,
        seconds,
        _find_address(address),
        max_concurrent,
        accelerator,
        owner if owner is not None else getpass.getuser(),
        named_tags,
    )
    console = console or new_console()
    for note in notes:
        console.print(note)
    with library_signals():
        return _result(run_sweep(folder, loaded, settings, console, opening), console)


def resume(
    name: str,
    *,
    storage: str | Path = STORAGE,
    time_budget: str | float | None = None,
    cpus_per_trial: float | None = None,
    gpus_per_trial: float | None = None,
    address: str | None = None,
    tracking_uri: str | None = None,
    with_: Iterable[str | Path] = (),
    console: Console | None = None,
) -> Result:
    """Continue an interrupted sweep, on other machines or with another MLflow store if the arguments name them.

    An argument that is left out keeps its earlier value. `address="local"` continues on this machine.
    `with_` gives the files of own techniques again, unchanged: the sweep records a hash of them and no code.

    Raises:
        UserError: there is no such sweep, it is completed, or another driver runs it.
        KeyboardInterrupt: Ctrl-C came before the first trial, or twice.
    """
    _load(with_)
    changes = _changes(cpus_per_trial, gpus_per_trial, address, tracking_uri)
    return _go_on(name, storage, time_budget, 0, changes, console)


def extend(
    name: str,
    trials: int,
    *,
    storage: str | Path = STORAGE,
    time_budget: str | float | None = None,
    cpus_per_trial: float | None = None,
    gpus_per_trial: float | None = None,
    address: str | None = None,
    tracking_uri: str | None = None,
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
    return _go_on(name, storage, time_budget, trials, changes, console)


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
        return _result(resume_sweep(folder, console, seconds, changes=changes), console)


def _read_part(space: Space, part: str) -> object:
    return space.search if part == "search" else space.recipe.get(part)


def _changes(
    cpus_per_trial: float | None, gpus_per_trial: float | None, address: str | None, tracking_uri: str | None
) -> dict[str, Any]:
    """Return the settings that a resume changes."""
    check_share("--cpus-per-trial", cpus_per_trial)
    check_share("--gpus-per-trial", gpus_per_trial, or_zero=True)
    given: dict[str, Any] = {"cpus_per_trial": cpus_per_trial, "gpus_per_trial": gpus_per_trial}
    if tracking_uri is not None:
        check_store(tracking_uri, EXPERIMENT)
        given["tracking_uri"] = absolute_uri(tracking_uri)
    changes = {name: value for name, value in given.items() if value is not None}
    return changes if address is None else {**changes, "address": _find_address(address)}


def _find_address(address: str | None) -> str | None:
    return None if address == "local" else address


def _go_on(
    name: str,
    storage: str | Path,
    time_budget: str | float | None,
    more: int,
    changes: dict[str, Any],
    console: Console | None,
) -> Result:
    seconds = _seconds(time_budget)
    from search.storage.folder import open_folder

    folder = open_folder(Path(storage).absolute(), name)
    from search.runner.sweep import resume_sweep

    console = console or new_console()
    with library_signals():
        return _result(resume_sweep(folder, console, seconds, more_trials=more, changes=changes), console)


def _result(end: SweepEnd, console: Console) -> Result:
    return Result(end.record, end.state, end.undelivered, console)


def _seconds(time_budget: str | float | None) -> float | None:
    if isinstance(time_budget, str):
        return parse_duration(time_budget)
    check_number("--time-budget", time_budget)
    return time_budget
