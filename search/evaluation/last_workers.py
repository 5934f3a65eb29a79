"""The last trainings as tasks of Ray, several at a time, where the trials of the sweep ran."""

from __future__ import annotations

import math
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from ledger.formatting import plural
from ledger.record import SweepRecord
from search.runner.interrupt import Interrupted, interruptible
from search.runner.machines.capacity import Capacity, plan_demand
from search.runner.machines.cluster import list_nodes, probe_cluster
from search.runner.machines.ray_failures import describe_failure
from search.runner.machines.ray_process import start_ray
from search.runner.worker import bootstrap, share_resources
from training.recipe import Recipe, read_recipe

if TYPE_CHECKING:
    import torch
    from ray import ObjectRef

LOOK_SECONDS = 0.5  # between two looks for a signal
# A resolved recipe as a dict, its weights, the names of the classes, and CPU threads: Ray unpickles no type of ours.
Answer = tuple[dict[str, object], "dict[str, torch.Tensor]", tuple[str, ...], int]


@dataclass(frozen=True)
class Trained:
    """A training: its resolved recipe, its weights, the names of the classes, and its CPU threads."""

    recipe: Recipe
    weights: dict[str, torch.Tensor]
    classes: tuple[str, ...]
    threads: int


class LastWorkers:
    """Trains recipes on the images of training and validation together; the end of the `with` block ends what still trains."""

    def __init__(
        self,
        record: SweepRecord,
        capacity: Capacity | None,
        say: Callable[[str], None],
        *,
        lanes: int = 1,
        until: float = math.inf,
    ) -> None:
        """Let `lanes` train at a time, until a time of the monotonic clock. Without a `capacity`, Ray may have to start."""
        self._folder, self._metric, self._say = record.folder.path / "final", record.trials.metric, say
        self._uses_share = record.recorded_settings.cpus_per_trial is None
        self._capacity, self._until, self._lanes = capacity or _join(record), until, lanes
        self._tasks: dict[str, ObjectRef[Answer | None]] = {}  # by their names

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        import ray

        for task in self._tasks.values():
            ray.cancel(task, force=True)
        self._capacity.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def running(self) -> int:
        """The number of trainings that have started and not ended."""
        return len(self._tasks)

    def has_room(self) -> bool:
        """Return whether another training may start."""
        return self.running < max(1, min(self._lanes, self._capacity.slots))

    def start(self, name: str, recipe: Recipe) -> None:
        """Start a training; no other has its name."""
        import ray

        self._say(f"Training {name} on training and validation images, {plural(recipe.epochs, 'epoch')}.")
        demand = self._capacity.widen(self._lanes)
        has = demand.resources
        task = ray.remote(bootstrap(__name__, "train_last")).options(
            name=f"{self._folder.parent.name}/{name}",
            num_cpus=has.pop("CPU"),
            num_gpus=has.pop("GPU", 0),
            resources=has,
            label_selector=self._capacity.selector,
            max_retries=0,  # the caller decides whether there is time for another
        )
        folder = str(self._folder / str(uuid4()))
        resources = demand.cpus, demand.gpus, self._uses_share
        self._tasks[name] = task.remote(recipe.model_dump(), folder, self._metric, *resources)

    def wait(self) -> tuple[str, Trained | None]:
        """Wait until one ends. Returns its name, and None if it diverged, was lost, or had no time to end.

        Raises:
            Interrupted: a signal came.
        """
        import ray

        ended: list[ObjectRef[Answer | None]] = []
        with interruptible() as interrupted:
            while not (ended or interrupted() or time.monotonic() >= self._until):
                ended, _ = ray.wait(list(self._tasks.values()), timeout=LOOK_SECONDS)
                self._capacity.look(self.running, self._lanes - self.running)  # so that other sweeps leave it the room
        if interrupted():
            raise Interrupted(interrupted.number or signal.SIGINT)
        name = next(name for name, task in self._tasks.items() if not ended or task in ended)
        task = self._tasks.pop(name)
        if not ended:
            ray.cancel(task, force=True)
            return name, None
        try:
            answer = ray.get(task)
        except ray.exceptions.RayError as error:
            cause = error.cause if isinstance(error, ray.exceptions.RayTaskError) else error
            self._say(f"{name} was not trained: {describe_failure(cause)}.")
            return name, None
        return name, answer and Trained(read_recipe(answer[0]), *answer[1:])


def _join(record: SweepRecord) -> Capacity:
    settings = record.recorded_settings.for_driver()
    probe_cluster(settings.address)
    start_ray(settings.address)
    nodes = list_nodes()
    demand = plan_demand(nodes, settings.cpus_per_trial, settings.gpus_per_trial, settings.accelerator)
    return Capacity(demand, nodes, look=None if settings.is_local else list_nodes)


def train_last(
    values: dict[str, object], folder: str, metric: str, cpus: float, gpus: float, uses_share: bool
) -> Answer | None:
    """Train in a worker of Ray; None if it diverged."""
    from training.evaluate import read_trained
    from training.train import train

    recipe, place = read_recipe(values), Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    resources = share_resources(recipe, cpus, gpus, uses_share)
    try:
        outcome = train(recipe, place, metric=metric, resources=resources, release=True)
        if outcome.state != "completed":
            return None
        weights = read_trained(place / "best.ckpt")["state_dict"]
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return outcome.recipe.model_dump(), weights, outcome.classes, resources.threads
