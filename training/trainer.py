"""The Lightning Trainer of a classifier, quiet and writing nothing by itself."""

from __future__ import annotations

import logging
from typing import Any

import lightning.pytorch as pl
from lightning.fabric.plugins.environments import LightningEnvironment

from training.callbacks import EpochSeeds
from training.classifier import Classifier

for _source in ("lightning.pytorch", "lightning.pytorch.utilities.rank_zero", "lightning.fabric", "bitsandbytes"):
    logging.getLogger(_source).setLevel(logging.ERROR)  # tips and adverts, and kernels that nothing here would use


def make_trainer(classifier: Classifier, callbacks: list[pl.Callback], **arguments: Any) -> pl.Trainer:
    """A Trainer with what the classifier's techniques ask of it; `arguments` say how long it runs."""
    plan = classifier.plan
    return pl.Trainer(
        accelerator="gpu" if plan.device == "cuda" else "cpu",
        devices=1,
        # A Slurm job's variables are Ray's business, not the trial's.
        plugins=[LightningEnvironment(), *plan.plugins],
        callbacks=[EpochSeeds(classifier.recipe.seed), *plan.callbacks, *callbacks],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        **plan.trainer,
        **arguments,
    )
