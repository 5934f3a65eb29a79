"""Probe the frozen backbone's features once per sweep, in a Ray task beside the first trials."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ledger.events import AnyEvent, EpochReported, FeaturesProbed
from search.core.controller import Controller
from search.runner.machines.ray_failures import describe_failure
from search.runner.worker import bootstrap
from spaces.space import Space
from training.errors import UserError
from training.recipe import Recipe, read_recipe

if TYPE_CHECKING:
    from ray import ObjectRef

MOST_THREADS = 4
ProbeAnswer = dict[str, Any]  # the fields of `FeaturesProbed`, or the `problem` in one line
LAST_WAIT_SECONDS = 60.0  # a short sweep may end before its probe
logger = logging.getLogger("search")


class Probe:
    """Starts the probe after the first report, so that no trial waits for it, and writes its result into the ledger."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.recipe = None if controller.replication or controller.trials.probe else find_probed(controller.space)
        self.answer: ObjectRef[ProbeAnswer] | None = None

    def __call__(self, event: AnyEvent) -> None:
        """Start the probe at the first report of a trial."""
        if self.recipe is not None and isinstance(event, EpochReported):
            self.answer = _start(self.recipe, self.controller.space.search.metric)
            self.recipe = None

    def collect(self, wait_seconds: float = 0.0) -> None:
        """Record the result, if it has come.

        Raises:
            OSError: the ledger cannot be written.
        """
        if self.answer is None:
            return
        import ray

        if not ray.wait([self.answer], timeout=wait_seconds)[0]:
            return
        answer, self.answer = self.answer, None
        try:
            result = ray.get(answer)
        except ray.exceptions.RayError as error:
            result = {"problem": describe_failure(error)}
        if "problem" in result:
            logger.warning("The linear probe on frozen features failed: %s.", result["problem"].rstrip("."))
        else:
            self.controller.record(FeaturesProbed(**result))

    def close(self, may_wait: Callable[[], bool]) -> None:
        """Wait some seconds for a probe that still runs, as long as `may_wait` is true, then end it.

        Raises:
            OSError: the ledger cannot be written.
        """
        until = time.monotonic() + LAST_WAIT_SECONDS
        while self.answer is not None and time.monotonic() < until and may_wait():
            self.collect(0.2)
        if self.answer is not None:
            import ray

            if may_wait():
                logger.warning("The linear probe on frozen features was ended: it took too long after the last trial.")
            ray.cancel(self.answer, force=True)


def find_probed(space: Space) -> Recipe | None:
    """Return the baseline; None if its backbone has no weights, or the probe is a trial of the sweep."""
    baseline = space.baselines()[0]
    return None if baseline.backbone.weights == "none" or space.probe() else baseline


def _start(recipe: Recipe, metric: str) -> ObjectRef[ProbeAnswer]:
    import ray

    # Each call gets a process of its own, because its priority stays low until it ends.
    probe = ray.remote(max_calls=1, max_retries=1)(bootstrap("search.runner.start.probe", "run_probe"))
    # The task requests no CPU, so it never waits for a trial, and no trial waits for it.
    answer: ObjectRef[ProbeAnswer] = probe.options(num_cpus=0).remote(recipe.model_dump(), metric)
    return answer


def run_probe(recipe: dict[str, object], metric: str) -> ProbeAnswer:
    """Run the probe in a Ray worker. Returns the fields of `FeaturesProbed`, or the `problem` in one line."""
    os.nice(10)
    began = time.perf_counter()
    from training.linear_probe import probe_features
    from training.process.resources import count_cpus

    try:
        given = read_recipe(recipe)
        result = probe_features(given, metric, max(1, min(MOST_THREADS, count_cpus() // 4)))
    except UserError as error:
        return {"problem": str(error)}
    except Exception as error:  # noqa: BLE001 - whatever it was, the trials go on without it
        return {"problem": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"}
    return {
        "backbone": given.backbone.name,
        "linear": result.linear.metrics,
        "linear_standard_error": result.linear.standard_error,
        "knn": result.knn.metrics,
        "train_images": result.train_images,
        "val_images": result.val_images,
        "seconds": time.perf_counter() - began,
    }
