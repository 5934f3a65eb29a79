"""The Lightning Trainer of a classifier, quiet and writing nothing by itself."""

from __future__ import annotations

import logging
from typing import Any

import lightning.pytorch as pl
from lightning.fabric.plugins.environments import LightningEnvironment
from lightning.pytorch.strategies import DDPStrategy

from training.distributed.rank import Rank
from training.distributed.sharding import Sharded
from training.loop.callbacks import EpochSeeds, Rewrap, SharedStatistics
from training.loop.classifier import Classifier

for _source in ("lightning.pytorch", "lightning.pytorch.utilities.rank_zero", "lightning.fabric", "bitsandbytes"):
    logging.getLogger(_source).setLevel(logging.ERROR)  # tips and adverts, and kernels that nothing here would use


def make_trainer(classifier: Classifier, callbacks: list[pl.Callback], **arguments: Any) -> pl.Trainer:
    """A Trainer with what the classifier's techniques ask of it; `arguments` say how long it runs."""
    plan = classifier.plan
    own: list[pl.Callback] = list(plan.callbacks)
    if plan.rank.count > 1:
        # Of the weights that trained, and of their average, once it has taken their place.
        own = [SharedStatistics(plan.rank), *own, SharedStatistics(plan.rank), Rewrap()]
    return pl.Trainer(
        accelerator="gpu" if plan.device == "cuda" else "cpu",
        strategy=_make_strategy(classifier),
        # A Slurm job's variables are Ray's business, not the trial's.
        plugins=[OneMachine(plan.rank), *plan.plugins],
        callbacks=[EpochSeeds(classifier.recipe.seed, plan.rank), *own, *callbacks],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        **{"devices": 1, **plan.trainer},
        **arguments,
    )


def _make_strategy(classifier: Classifier) -> Any:
    count = classifier.plan.rank.count
    if count == 1:
        return "auto"
    if classifier.recipe.data_parallel.strategy == "fsdp":
        return Sharded(count)
    # Buffers are shared once an epoch, not by one rank before each step.
    return DDPStrategy(broadcast_buffers=False)


class OneMachine(LightningEnvironment):
    """The ranks are there, and know each other, before Lightning starts."""

    def __init__(self, rank: Rank) -> None:
        super().__init__()
        self.rank = rank

    @property
    def creates_processes_externally(self) -> bool:
        return self.rank.count > 1

    def local_rank(self) -> int:
        return self.rank.number
