"""Build a recipe's backbone with its weights and a new head."""

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
    """Build a backbone with its weights and a randomly initialised head, which depends on torch's global seed.

    Returns:
        A model from float images (N, 3, image_size, image_size) to logits (N, class_count).

    Raises:
        UserError: the backbone is unknown or does not accept such images, or its weights are not available.
    """
    if backbone.weights == "pretrained" and backbone.source == "timm":
        # timm adapts its weights to the model: it renames old keys and resizes position embeddings.
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
    """Refuse batches of one image if BatchNorm would then see a single value per channel.

    A backbone without BatchNorm, a frozen one and larger images are accepted.

    Raises:
        UserError: BatchNorm would see a single value per channel.
    """
    if recipe.batch_size != 1:
        return
    tried = copy.deepcopy(model).train()
    _, frozen = set_level(tried, recipe.unfreeze.deepest, recipe.unfreeze.adapt_statistics)
    for module in frozen:
        module.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):  # do not change the random numbers of the training
            tried(torch.zeros(1, 3, image_size, image_size))
    except ValueError:
        raise UserError(
            f"batch_size=1: BatchNorm in {recipe.backbone.name} cannot learn from one image of {image_size}×{image_size} "
            "at a time, because its last layers see one value per channel. Give batch_size=2 or more, with "
            "accumulation.batches for larger steps, or a backbone without BatchNorm."
        ) from None


def _load(model: nn.Module, weights: dict[str, torch.Tensor], origin: str) -> None:
    """Load all weights except the head's, and log the keys that did not match."""
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
