"""The Lightning Trainer of a classifier: without output and without files."""

from __future__ import annotations

import logging
from pathlib import Path

import lightning.pytorch as pl
from lightning.fabric.plugins.environments import LightningEnvironment
from lightning.pytorch.plugins import TorchCheckpointIO
from lightning.pytorch.strategies import DDPStrategy, Strategy
from torch.utils.serialization import config

from training.distributed.progress import COMPILED_STEP_SECONDS, STEP_SECONDS, ProgressMarks
from training.distributed.rank import Rank
from training.distributed.sharding import Sharded
from training.loop.callbacks import EpochSeeds, Rewrap, SharedStatistics
from training.loop.checkpoint import Saved, write_checkpoint
from training.loop.classifier import Classifier

for _source in ("lightning.pytorch", "lightning.pytorch.utilities.rank_zero", "lightning.fabric", "bitsandbytes"):
    # They print tips, and warnings about kernels that are not used here.
    logging.getLogger(_source).setLevel(logging.ERROR)


def make_trainer(
    classifier: Classifier, callbacks: list[pl.Callback], *, epochs: int = -1, steps: int | None = None
) -> pl.Trainer:
    """Build the Trainer for a classifier's techniques; with `steps` it takes so many, and validates nothing."""
    plan = classifier.plan
    limits = {} if steps is None else {"max_steps": steps, "limit_val_batches": 0}
    technique_callbacks: list[pl.Callback] = [*plan.callbacks, *classifier.recipe.optimizer.callbacks()]
    if plan.rank.count > 1:
        # Once for the trained weights, and once for their average after it has replaced them.
        technique_callbacks = [SharedStatistics(plan.rank), *technique_callbacks, SharedStatistics(plan.rank), Rewrap()]
        is_compiled = classifier.recipe.compilation.is_on
        technique_callbacks.insert(0, ProgressMarks(COMPILED_STEP_SECONDS if is_compiled else STEP_SECONDS))
    return pl.Trainer(
        accelerator="gpu" if plan.device == "cuda" else "cpu",
        strategy=_make_strategy(classifier),
        # Lightning would otherwise use the variables of a Slurm job, which are meant for Ray.
        plugins=[OneMachine(plan.rank), DirectFile(), *plan.plugins],
        callbacks=[EpochSeeds(classifier.recipe.seed, plan.rank), *technique_callbacks, *callbacks],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        max_epochs=epochs,
        **{"devices": 1, **plan.trainer, **limits},
    )


def _make_strategy(classifier: Classifier) -> Strategy | str:
    count = classifier.plan.rank.count
    if count == 1:
        return "auto"
    if classifier.recipe.data_parallel.strategy == "fsdp":
        return Sharded(count)
    # SharedStatistics averages the buffers once an epoch; DDP would copy those of one rank before each step.
    return DDPStrategy(broadcast_buffers=False)


class DirectFile(TorchCheckpointIO):
    """Writes Lightning's checkpoint straight into its file. Lightning's own way copies it in memory twice before.

    It leaves out the checksums, a third of the time: torch never reads them, and nothing else reads this file.
    """

    def save_checkpoint(self, checkpoint: Saved, path: str | Path, storage_options: object = None) -> None:
        with config.patch("save.compute_crc32", False):  # type: ignore[attr-defined]  # added when it is imported
            write_checkpoint(checkpoint, Path(path))


class OneMachine(LightningEnvironment):
    """A cluster whose ranks already run and are connected before Lightning starts."""

    def __init__(self, rank: Rank) -> None:
        super().__init__()
        self.rank = rank

    @property
    def creates_processes_externally(self) -> bool:
        return self.rank.count > 1

    def local_rank(self) -> int:
        return self.rank.number
