"""A recipe's backbone with its weights and a new head."""

from __future__ import annotations

import copy
import logging
from pathlib import Path

import torch
from torch import nn

from training.contract.specs import Backbone
from training.errors import UserError
from training.model.backbones import build_bare
from training.model.letters import letters_weights
from training.model.stages import head_of
from training.model.weights import fetch_pretrained, read_weights
from training.recipe import Recipe
from training.techniques.model.unfreeze import set_level

log = logging.getLogger(__name__)


def build_model(backbone: Backbone, class_count: int, image_size: int) -> nn.Module:
    """Build a backbone with its weights and a freshly initialised head; initial weights follow torch's global seed.

    The result maps float images of shape (N, 3, image_size, image_size) to logits of shape (N, class_count).

    Raises:
        UserError: an unknown backbone, one that cannot take such images, or weights that cannot be had.
    """
    if backbone.weights == "pretrained" and backbone.source == "timm":
        # timm adapts its own weights to the model: names of older checkpoints, position embeddings of another size.
        overlay = {"state_dict": fetch_pretrained(backbone), "num_classes": 0}
        return build_bare(backbone, class_count, image_size, pretrained=True, pretrained_cfg_overlay=overlay)
    model = build_bare(backbone, class_count, image_size)
    if backbone.weights == "letters":
        _load(model, letters_weights(backbone), "letters")
    elif backbone.weights == "pretrained":
        _load(model, fetch_pretrained(backbone), "pretrained")
    elif backbone.weights != "none":
        _load(model, read_weights(Path(backbone.weights), "backbone.weights"), backbone.weights)
    return model


def refuse_single_images(recipe: Recipe, model: nn.Module, image_size: int) -> None:
    """Refuse to train on one image at a time where BatchNorm would have a single value of each channel.

    Raises:
        UserError: as it says; a backbone without BatchNorm, a frozen one or larger images are fine.
    """
    if recipe.batch_size != 1:
        return
    tried = copy.deepcopy(model).train()
    _, frozen = set_level(tried, recipe.unfreeze.deepest)
    for module in frozen:
        module.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):  # the training's own draws stay as they are
            tried(torch.zeros(1, 3, image_size, image_size))
    except ValueError:
        raise UserError(
            f"batch_size=1: BatchNorm in {recipe.backbone.name} cannot learn from one image of {image_size}×{image_size} "
            "at a time, as its last layers see one value of each channel. Give batch_size=2 or more, with "
            "accumulation.batches for larger steps, or a backbone without BatchNorm."
        ) from None


def _load(model: nn.Module, weights: dict[str, torch.Tensor], origin: str) -> None:
    """Load all but the head, and report the keys that did not fit."""
    head = {id(p) for p in head_of(model).parameters()}
    own = {name: p for name, p in model.state_dict(keep_vars=True).items() if id(p) not in head}
    fitting = {name: value for name, value in weights.items() if name in own and own[name].shape == value.shape}
    missing = sorted(own.keys() - fitting.keys() - {n for n in own if n.endswith("num_batches_tracked")})
    if not fitting or len(missing) > len(own) // 2:
        raise UserError(
            f"backbone.weights={origin}: {len(missing)} of the backbone's {len(own)} tensors are not in it "
            f"({', '.join(missing[:3])}, …). Give weights of the same architecture."
        )
    if missing:
        log.warning("backbone.weights=%s: not loaded: %s", origin, ", ".join(missing))
    model.load_state_dict(fitting, strict=False)
