"""Replay the passes of a model as CUDA graphs, where that makes its steps faster (Nguyen et al. 2021).

A small model is computed faster than the host can launch its kernels. A graph launches all kernels of a pass at once. The
kernels are the same, so are the results. "Accelerating PyTorch with CUDA Graphs", PyTorch blog, 2021.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import cast

import lightning.pytorch as pl
import torch
from torch.autograd.function import FunctionCtx, once_differentiable

from training.callbacks.resizing import BatchResizing
from training.contract.own_parts import list_own
from training.contract.setup import TrainedModule, TrainingSetup
from training.process.resources import read_gpu_limit
from training.recipe import Recipe

FEWEST_STEPS = 150  # of one kind that are left; to time and record the passes takes as long as twenty of them
SETTLING, MEASURED = 5, 10  # steps before the times count, and steps that are timed
WORTHWHILE = 0.95  # largest time of a replayed step relative to a usual one
LARGEST_SHARE = 0.4  # of the GPU's memory in use before: a recording has its own memory, beside that of other batches
WARM_UPS = 3  # passes in which the libraries choose kernels and allocate what they keep

Compute = Callable[[torch.Tensor], torch.Tensor]

logger = logging.getLogger(__name__)


class Recording:
    """The forward and the backward pass from inputs of one shape (N, ...) to logits (N, classes)."""

    def __init__(self, compute: Compute, inputs: torch.Tensor, weights: Sequence[torch.Tensor]) -> None:
        """Record the passes; `weights` get gradients, and must stay where they are in memory.

        Raises:
            RuntimeError: the model waits for the GPU in a pass, or the memory does not suffice.
        """
        self.weights = weights
        self.inputs = inputs.clone()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        # The cache of 16-bit weights would outlive the recording.
        dtype, is_on = torch.get_autocast_dtype("cuda"), torch.is_autocast_enabled("cuda")
        with torch.autocast("cuda", dtype, enabled=is_on, cache_enabled=False):
            with torch.cuda.stream(stream):
                for _ in range(WARM_UPS):
                    logits = compute(self.inputs)
                    self._differentiate(logits, torch.zeros_like(logits))
            self.forward, self.backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
            # Threads that load images call CUDA meanwhile, which the default mode refuses.
            record = partial(torch.cuda.graph, stream=stream, capture_error_mode="thread_local")
            with record(self.forward):
                logits = compute(self.inputs)
            self.gradient = torch.zeros_like(logits)
            with record(self.backward, pool=self.forward.pool()):
                self.gradients = self._differentiate(logits, self.gradient)
        self.logits = logits.detach()

    def _differentiate(self, logits: torch.Tensor, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return torch.autograd.grad(logits, self.weights, gradient, allow_unused=True)

    def run(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return logits, valid until the next call, with a backward pass that is valid until then too."""
        return cast(torch.Tensor, _Replay.apply(self, inputs, *self.weights))  # type: ignore[no-untyped-call]


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, recording: Recording, inputs: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        ctx.recording = recording  # type: ignore[attr-defined]
        recording.inputs.copy_(inputs)
        recording.forward.replay()
        return recording.logits.detach()

    @staticmethod
    @once_differentiable  # type: ignore[misc]
    def backward(ctx: FunctionCtx, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        recording = cast(Recording, ctx.recording)  # type: ignore[attr-defined]
        recording.gradient.copy_(gradient)
        recording.backward.replay()
        return None, None, *(None if value is None else value.detach() for value in recording.gradients)


def may_record(recipe: Recipe, plan: TrainingSetup) -> bool:
    """Whether a graph can have all that a training does in a pass of its model."""
    batches_per_step = plan.batches_per_step or (lambda epoch: 1)
    own = {name for name in list_own() if getattr(vars(recipe).get(name), "is_on", False)}
    return not (
        plan.device != "cuda"
        or own  # it may compute on the host, which a graph leaves out
        or recipe.backbone.source == "own"  # so may this
        or plan.rank.count > 1
        or recipe.compilation.is_on
        or recipe.activation_checkpointing.is_on  # it stores and sets random states
        or plan.find_worst_point is not None  # the second pass has other statistics
        or max(map(batches_per_step, range(recipe.epochs))) > 1  # gradients of two passes would share their memory
        or any(isinstance(callback, BatchResizing) for callback in plan.callbacks)
    )


class RecordedPasses(pl.Callback):
    """Times a few steps, records the passes of the model, times a few steps again, and keeps the faster way."""

    def __init__(self) -> None:
        self.kind: object = None

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        classifier = cast(TrainedModule, pl_module)
        parameters = list(classifier.model.parameters())
        kind = [(parameter.data_ptr(), parameter.requires_grad) for parameter in parameters]
        if kind == self.kind:
            return
        self.kind = kind
        self.times: list[float] = []
        self.weights = [parameter for parameter in parameters if parameter.requires_grad]
        self.recording: Recording | None = None
        epoch, recipe = trainer.current_epoch, classifier.recipe
        end = min(m for m in (*recipe.unfreeze.milestones, recipe.epochs) if m > epoch)
        sizes = classifier.plan.batch_sizes
        self.largest = max(sizes)
        self.usual: float | None = None  # seconds of a step that is not recorded
        self.is_open = (end - epoch) * len(sizes) >= FEWEST_STEPS

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: object) -> None:
        if self.is_open:
            torch.cuda.synchronize()
            self.began = time.perf_counter()

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: object) -> None:
        if not self.is_open:
            return
        torch.cuda.synchronize()
        self.times.append(time.perf_counter() - self.began)
        if len(self.times) < SETTLING + MEASURED:
            return
        seconds, self.times = median(self.times[SETTLING:]), []
        if self.usual is None:
            self.usual = seconds
            return
        self.is_open = False
        if seconds > WORTHWHILE * self.usual:
            self.recording = None
        logger.info(
            "A step takes %.1f ms, and %.1f ms if its passes are replayed as graphs%s.",
            1000 * self.usual,
            1000 * seconds,
            "" if self.recording else ": they are not",
        )

    def compute(self, model: torch.nn.Module, compute: Compute, inputs: torch.Tensor) -> torch.Tensor:
        """Return the logits of training images or features, by a recording where there is one."""
        if self.is_open and self.usual is not None and self.recording is None and len(inputs) == self.largest:
            self._record(model, compute, inputs)
        if self.recording is not None and self.recording.inputs.shape == inputs.shape:
            return self.recording.run(inputs)
        return compute(inputs)

    def _record(self, model: torch.nn.Module, compute: Compute, inputs: torch.Tensor) -> None:
        if torch.cuda.max_memory_allocated() > LARGEST_SHARE * read_gpu_limit():
            self.is_open = False
            return
        random = torch.cuda.get_rng_state()
        buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
        try:
            self.recording = Recording(compute, inputs, self.weights)
        except RuntimeError as error:
            self.is_open = False
            logger.info("The passes of a step cannot be recorded: %s", str(error).split("\n")[0])
        for buffer, value in buffers:
            buffer.copy_(value)
        torch.cuda.set_rng_state(random)
        self.times = []
