"""Train one recipe: a Lightning fit that reports every epoch, keeps the best and the last weights, and can resume."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import lightning.pytorch as pl
import numpy as np

from training.contract.setup import TrainingSetup
from training.data.load_data import ImageData, load_data
from training.data.pipelines.loaders import list_batch_sizes, make_loaders
from training.distributed.parallel import connected, lead
from training.distributed.rank import Rank
from training.distributed.sharding import shard
from training.errors import Diverged
from training.features.use import FeatureUse
from training.linear_probe import start_head
from training.loop.auto_values.finders import MilestoneRate, find_batch_size, find_lr
from training.loop.callbacks import NaNStop
from training.loop.checkpoint import list_given
from training.loop.classifier import Classifier
from training.loop.epoch_report import Kept, Outcome, Report
from training.loop.epoch_reporter import EpochReporter
from training.loop.job import TrainingJob
from training.loop.recorded_passes import RecordedPasses, may_record
from training.loop.trainer import make_trainer
from training.model.batch_statistics import has_batch_norm
from training.model.build import build_model, refuse_single_images
from training.model.convolutions import replace_convolutions
from training.model.teacher import read_teacher
from training.process.isolation import isolated_process
from training.process.resources import ONE_CPU, Resources, limit_memory
from training.recipe import Recipe
from training.resolve import resolve_recipe

if TYPE_CHECKING:
    from torch.distributed import Store


def train(
    recipe: Recipe,
    folder: Path,
    *,
    metric: str = "val_accuracy",
    score: Kept = "best",
    resources: Resources = ONE_CPU,
    on_report: Callable[[Report], bool] = lambda report: True,
    release: bool = False,
    val_images: int | None = None,
) -> Outcome:
    """Train a recipe, or resume from `folder/last.ckpt` if that exists.

    Writes two files: `last.ckpt` to resume from, and `best.ckpt` with the weights of the best epoch (or the last one, as
    `score` says), the resolved recipe and the names of the classes.

    Args:
        recipe: What to train; it may contain `auto`.
        folder: Where the checkpoints are written.
        metric: The validation metric of the score.
        score: The epoch that is scored and whose weights are kept: best or last.
        resources: The CPUs and GPUs that the training may use.
        on_report: Called at the end of each epoch, once its checkpoint is on disk. A resumed training first calls it for
            the epochs in the checkpoint. Training stops when it returns False.
        release: Train on the validation part too; the last epoch is then the one that is kept.
        val_images: Evaluate on so many validation images only, to measure the speed; None: on all of them.

    Raises:
        LostDevice: the process of another device died or hangs.
        MemoryError: the system killed the process of another device for memory.
    """
    devices = recipe.data_parallel.devices
    job = TrainingJob(recipe, folder, metric, resources.divide(devices), release, score, val_images)
    return _train_isolated(job, Rank(0, devices), lead(job, devices, resources.device), on_report)


def train_beside(job: TrainingJob, rank: Rank, store: Store) -> None:
    """Train in a process other than the first one, which reports."""
    _train_isolated(job, rank, connected(store, rank, job.resources.device), lambda report: True)


def _train_isolated(
    job: TrainingJob, rank: Rank, company: AbstractContextManager[None], on_report: Callable[[Report], bool]
) -> Outcome:
    # Also at 1.0: a worker may have trained with a smaller share before.
    limit_memory(job.resources.device, job.resources.gpu_share)
    with isolated_process(job.recipe.seed, job.resources.threads):
        # A separate function, so that its variables are freed before the isolation cleans up.
        return _train(job, rank, company, on_report)


def _train(
    job: TrainingJob, rank: Rank, company: AbstractContextManager[None], on_report: Callable[[Report], bool]
) -> Outcome:
    data = load_data(job.recipe.data)
    recipe = resolve_recipe(job.recipe, data, job.resources.device)
    if job.release:
        data = replace(data, train=data.train.join(data.val))
    if job.val_images is not None and job.val_images < len(data.val):
        spread = np.linspace(0, len(data.val) - 1, job.val_images).astype(int)
        data = replace(data, val=data.val.select(spread))
    kept: Kept = "last" if job.release else job.score  # the images of a release's validation part are in its training
    reporter = EpochReporter(job.folder, recipe, data.classes, job.metric, on_report, kept, rank)
    checkpoint = reporter.resume()
    data = data.in_order(reporter.classes)
    if reporter.stopped or len(reporter.reports) == recipe.epochs:
        return Outcome("stopped" if reporter.stopped else "completed", reporter.recipe, data.classes, reporter.reports)
    with company:
        state = _train_on(data, job, rank, reporter, checkpoint)
    return Outcome(state, reporter.recipe, data.classes, reporter.reports)


def _train_on(
    data: ImageData, job: TrainingJob, rank: Rank, reporter: EpochReporter, checkpoint: Path | None
) -> Literal["completed", "stopped", "diverged"]:
    resources = job.resources
    threads, device = resources.threads, resources.device
    build = partial(prepare, data, device, rank)
    epoch_size = reporter.recipe.data.epoch_size or len(data.train)
    reporter.stopwatch.start("finder")
    recipe = find_batch_size(reporter.recipe, build, threads, epoch_size)
    reporter.stopwatch.stop()
    classifier = build(recipe)
    batch_sizes = classifier.plan.batch_sizes
    loaders = make_loaders(data, recipe, workers=resources.workers, device=device, rank=rank, batch_sizes=batch_sizes)
    try:
        reporter.stopwatch.start("finder")
        classifier.recipe = reporter.recipe = find_lr(recipe, build, loaders, threads)
        reporter.stopwatch.stop()
        # Lightning calls set_epoch only after the loader workers have started on the first batches.
        loaders.train_batches.sampler.set_epoch(len(reporter.reports))
        features = FeatureUse(classifier, data, loaders, resources.workers, reporter.stopwatch)
        if classifier.plan.head_start is not None and checkpoint is None:
            reporter.stopwatch.start("train")
            start_head(classifier, data.train, resources.workers)
            reporter.stopwatch.stop()
        if job.val_images is None:  # a measurement of the speed computes everything
            features.begin(len(reporter.reports), checkpoint)
        features.prepare_images()
        return _fit(classifier, features, reporter, checkpoint, threads)
    finally:
        loaders.close()


def prepare(data: ImageData, device: str, rank: Rank, recipe: Recipe, epoch_size: int | None = None) -> Classifier:
    """Build the model of a resolved recipe, and let the techniques change its set-up.

    `epoch_size` is the number of images in an epoch; None: that of the recipe.
    """
    image_size = recipe.preprocessing.side
    assert isinstance(recipe.batch_size, int)  # resolved
    model = build_model(recipe.backbone, len(data.classes), image_size)
    refuse_single_images(recipe, model, image_size)
    given = {} if recipe.unfreeze.level == "full" else list_given(model, recipe.backbone)
    counts = tuple(np.bincount(data.train.labels, minlength=len(data.classes)).tolist())
    images = epoch_size or recipe.data.epoch_size or len(data.train)
    batch_sizes = list_batch_sizes(images, recipe.batch_size, rank, has_batch_norm(model))
    setup = TrainingSetup(
        model,
        device,
        len(data.classes),
        batch_sizes,
        image_size,
        counts,
        rank,
        missing_weights=getattr(model, "missing_weights", 0.0),
        read_teacher=partial(read_teacher, student=recipe, classes=data.classes),
    )
    for technique in recipe.techniques():
        technique.apply(setup)
    setup.zero_matrices = {weight for weight in model.parameters() if weight.ndim > 1 and not weight.any()}
    if recipe.data_parallel.strategy == "fsdp":
        shard(setup)  # after all techniques have changed the model
    elif device == "cpu":
        replace_convolutions(setup.model)
    return Classifier(recipe, setup, given)


def _fit(
    classifier: Classifier, features: FeatureUse, reporter: EpochReporter, checkpoint: Path | None, threads: int
) -> Literal["completed", "stopped", "diverged"]:
    callbacks: list[pl.Callback] = [features]
    if classifier.recipe.unfreeze.milestone_lr != "keep":
        callbacks.append(MilestoneRate(threads, reporter.stopwatch))
    if may_record(classifier.recipe, classifier.plan):
        classifier.passes = RecordedPasses()
        callbacks.append(classifier.passes)
    callbacks += [NaNStop(reporter.rank), reporter]
    trainer = make_trainer(classifier, callbacks, epochs=classifier.recipe.epochs)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Lightning gives advice on loader workers and intervals
            trainer.fit(classifier, features.train, features.val, ckpt_path=checkpoint)
    except Diverged:
        return "diverged"
    return "stopped" if reporter.stopped else "completed"
