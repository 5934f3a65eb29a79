"""Run one trial in a Ray worker: train, report each epoch, and clean up for the next trial in this process."""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from search.arguments import VERBOSE
from search.copies.place import CopyPlace, describe_store_error, fetch_trial, send_trial
from search.runner.machines.drain import DrainWatch

if TYPE_CHECKING:
    from ledger.events import EndState
    from training.loop.epoch_report import Kept, Report
    from training.process.resources import Resources
    from training.recipe import Recipe


DIVERGED = "the loss became infinite or NaN"
ROOMS = ("search", "analysis", "ledger", "spaces", "training")  # the packages of this project


def bootstrap(module: str, function: str):
    """Return a function for a Ray worker that calls our `function`, which it imports from the folder of this project.

    Ray puts the working folder first on `sys.path`, so a user's own `search/` or `training/` there would hide ours. A
    nested function is pickled by value, so the worker imports none of our modules before the path is correct. It also
    brings the files of techniques that are not bundled.
    """
    from training.contract.own_parts import PARTS
    from training.plugins import list_sources

    root, sources, has_own = project_root(), list_sources(), bool(PARTS)

    def call(*arguments: Any) -> Any:
        import importlib
        import os
        import sys

        if os.path.isdir(root) and sys.path[0] != root:
            sys.path.insert(0, root)
        if has_own:
            importlib.import_module("training.plugins").load_sources(sources)
        return getattr(importlib.import_module(module), function)(*arguments)

    return call


@dataclass(frozen=True)
class TrialInput:
    """The input of a worker for one trial; Ray sends it as a dict."""

    trial: int
    recipe: dict[str, Any]
    folder: str
    metric: str
    score: Kept
    reported: int  # last epoch that the driver has received
    cpus: float
    uses_share: bool  # whether the trial may use all CPUs that belong to its GPUs on the worker's node
    gpus: float
    crashes: int  # number of workers of this trial that died by themselves
    resources: dict[str, float]  # what it demands, as Ray counts it
    selector: dict[str, str]  # what the labels of its node must be, in Ray's words
    is_new: bool = True  # whether no worker has had it before
    copy: str = ""  # URI of the folder that gets its checkpoints, if any


class Message(TypedDict, total=False):
    """A message of a worker: an epoch, or an end before the last epoch."""

    report: dict[str, Any]
    worker_seconds: float
    host: str
    end: EndState
    reason: str
    node: str  # id of the node where it failed
    fatal: bool  # True if every other trial would fail too
    away: bool  # True if the images are away, so that trials wait for them


@dataclass(frozen=True)
class WorkerMark:
    """What `worker.json` in a trial's folder holds: where and when a worker last began the trial."""

    host: str
    kills: int  # processes that the system had killed for memory until then


def run_trial(config: dict[str, Any]) -> None:
    """Train the recipe of a `TrialInput` in its folder, and report each epoch and the end to the driver.

    It never raises for an error of the recipe or the data: the driver would treat that as a dead worker and try again. It
    raises `LostDevice`, because the trial can continue.
    """
    from ray import tune

    told_to_stop = False

    def tell(message: Message) -> bool:
        nonlocal told_to_stop
        try:
            tune.report({"message": json.dumps(message)})
        except SystemExit:  # Ray raises this here to stop a trial when another one needs the worker
            told_to_stop = True
        return not told_to_stop

    message = _train(TrialInput(**config), tell)
    if message and message.get("end") == "failed":
        message["node"] = _own_node()
    if message and not told_to_stop:
        tell(message)
    if told_to_stop:
        # If this returned, Ray would report a result for a trial that has left, and the next trial would fail.
        sys.exit(0)


def _train(given: TrialInput, tell: Callable[[Message], bool]) -> Message | None:
    """Train and report each new epoch. Returns a message if the training ended before the last epoch."""
    from training.data.files.away import find_places, wait_while_away
    from training.recipe import read_recipe
    from training.train import train

    folder = Path(given.folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return {"end": "failed", "reason": f"{folder}: {error.strerror}"}
    if killed_for_memory(folder) and given.crashes:
        return {"end": "out_of_memory", "reason": "the system killed its worker for memory"}

    began = time.perf_counter()
    watch, place = DrainWatch(_own_node()), CopyPlace(given.copy) if given.copy else None

    def on_report(report: Report) -> bool:
        seconds = time.perf_counter() - began
        message: Message = {"report": asdict(report), "worker_seconds": seconds, "host": socket.gethostname()}
        if report.epoch <= given.reported:
            return True
        if place is not None:
            with _needed(place):
                send_trial(place, folder, has_new_best=report.best_epoch == report.epoch)
        goes_on = tell(message)
        if goes_on and report.epoch < given.recipe["epochs"]:
            watch.end_epoch()
        return goes_on

    try:
        if place is not None:
            with _needed(place):
                fetch_trial(place, folder, given.is_new)
        with _logged_to(folder / "log.txt"), watch:
            recipe = read_recipe(given.recipe)
            wait_while_away(lambda: find_places(recipe.data))
            resources = share_resources(recipe, given.cpus, given.gpus, given.uses_share)
            outcome = train(
                recipe, folder, metric=given.metric, score=given.score, resources=resources, on_report=on_report
            )
        return {"end": "diverged", "reason": DIVERGED} if outcome.state == "diverged" else None
    except BaseException as error:  # noqa: BLE001 - whatever it was, it is this trial's and not the worker's
        return _describe_end(error, folder)


def _describe_end(error: BaseException, folder: Path) -> Message:
    """Return the message about an error that ended a training; raise it if the trial can go on with another worker."""
    from traceback import extract_tb

    import torch

    from training.contract.own_parts import locate_fault
    from training.errors import DataAway, LostDevice, UserError, describe_error, first_line

    match error:
        case LostDevice():
            raise error
        case DataAway():
            return {"end": "interrupted", "reason": str(error), "away": True}
        case StoreError():  # as with a full disk below
            return {"end": "interrupted", "reason": str(error), "fatal": True}
        case UserError() if first_line(error):
            return {"end": "failed", "reason": str(error)}
        case OSError() if not folder.is_dir():
            raise LostDevice(f"{folder} was removed, so the trial begins again") from error
        case OSError() if error.errno in (errno.ENOSPC, errno.EDQUOT):
            # Every other trial would fail too, so the sweep must end; this trial continues later, when the disk has space.
            return {"end": "interrupted", "reason": f"{folder}: {error.strerror}", "fatal": True}
        case torch.OutOfMemoryError() | MemoryError():
            return {"end": "out_of_memory", "reason": first_line(error) or "out of memory"}
    place = locate_fault(error)
    # Ray and the system end a worker with such an exception; an own technique may call `sys.exit`.
    if not isinstance(error, Exception) and (isinstance(error, KeyboardInterrupt) or not place):
        raise error
    if place is None and not first_line(error) and (frames := extract_tb(error.__traceback__)):
        place = f"{frames[-1].filename}, line {frames[-1].lineno}"
    where = f" in {place}" if place else ""
    return {"end": "failed", "reason": f"{describe_error(error)}{where}; see {folder / 'log.txt'}"}


class StoreError(Exception):
    """The store of the copies does not answer, or refuses."""


@contextmanager
def _needed(place: CopyPlace) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"{place.uri}: {describe_store_error(error)}") from error


def share_resources(recipe: Recipe, cpus: float, gpus: float, uses_share: bool) -> Resources:
    """Return what a training in this worker may use."""
    from training.process.resources import Resources, split_cpus

    if gpus and uses_share:  # also the CPUs that its share of this node adds
        from search.runner.machines.cluster import list_nodes, share_of

        here = _own_node()
        cpus = next((share_of(node, cpus, gpus) for node in list_nodes() if node.id == here), cpus)
    threads, workers = split_cpus(cpus, not recipe.data.reads_files, gpus > 0)
    device: Literal["cpu", "cuda"] = "cuda" if gpus else "cpu"
    # With a part of a GPU a trial has one device too.
    return Resources(threads, workers, device, max(1, int(gpus)), min(1.0, gpus or 1.0))


def _own_node() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


def killed_for_memory(folder: Path) -> bool:
    """Return whether the system killed a process for memory since a worker last began this trial on this machine.

    A worker that was killed in this way cannot report it.
    """
    from training.process.resources import count_memory_kills
    from training.process.text_files import keep_json, recall_json

    mark = folder / "worker.json"
    now = WorkerMark(host=socket.gethostname(), kills=count_memory_kills())
    before = recall_json(mark, WorkerMark) or now
    with suppress(OSError):  # a full disk is noticed by the training, and is no fault of this worker
        keep_json(mark, asdict(now))
    return before.host == now.host and before.kills < now.kills


@contextmanager
def _logged_to(path: Path) -> Iterator[None]:
    handler, logger = logging.FileHandler(path, delay=True, errors="backslashreplace"), logging.getLogger("training")
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    handler.setFormatter(logging.Formatter(form))
    logger.addHandler(handler)
    shown = logging.StreamHandler()  # Ray prints it in the driver
    shown.setFormatter(logging.Formatter(f"{path.parent.name} {form}"))
    if VERBOSE in os.environ:
        logger.addHandler(shown)
    logger.setLevel(logging.INFO)
    try:
        yield
    except BaseException as error:
        from training.errors import describe_error

        logger.error("%s", describe_error(error), exc_info=error)
        raise
    finally:  # the folder may be gone, and the next trial of this process has another one
        logger.removeHandler(handler)
        logger.removeHandler(shown)
        handler.close()


def project_root() -> str:
    """Return the folder that has this project's packages."""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
