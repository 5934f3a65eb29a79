"""Build a recipe's backbone with its weights and a new head."""

from __future__ import annotations

import copy
import logging
import sys
from collections import OrderedDict
from pathlib import Path

import torch
from torch import nn
from torchvision.models.vision_transformer import VisionTransformer, interpolate_embeddings

from training.contract.specs import Backbone
from training.errors import UserError
from training.model.backbones import build_bare
from training.model.letters import letters_weights
from training.model.stages import head_of, list_backbone_tensors
from training.model.weight_files import match_names, read_weights
from training.model.weights import fetch_pretrained
from training.recipe import Recipe

log = logging.getLogger(__name__)


def build_model(backbone: Backbone, class_count: int, image_size: int) -> nn.Module:
    """Build a backbone with its weights and a randomly initialised head, which depends on torch's global seed.

    Returns:
        A model from float images (N, 3, image_size, image_size) to logits (N, class_count). Its attribute
        `missing_weights` is the share of the backbone's tensors that its weights lack; absent if they were not asked for.
    """
    if backbone.weights == "pretrained" and backbone.source == "timm":
        # timm adapts its weights to the model: it renames old keys and resizes position embeddings.
        overlay = {"state_dict": fetch_pretrained(backbone), "num_classes": 0}
        return _shrink_large_head(build_bare(backbone, class_count, image_size, overlay))
    model = build_bare(backbone, class_count, image_size)
    if backbone.weights == "letters":
        _load(model, letters_weights(backbone), "letters", image_size)
    elif backbone.weights == "pretrained":
        _load(model, fetch_pretrained(backbone), "pretrained", image_size)
    elif backbone.weights != "none":
        _load(model, read_weights(Path(backbone.weights), "backbone.weights"), backbone.weights, image_size)
    return model if backbone.weights == "none" else _shrink_large_head(model)


def _shrink_large_head(model: nn.Module) -> nn.Module:
    """Start a new head on pretrained features as torch starts an nn.Linear, if its library has it much larger.

    timm and torchvision start the head of EfficientNet and timm that of MobileNetV3 with U(-1/√classes, 1/√classes), for
    a training of the whole network from nothing. For 10 classes on 1,280 features these are weights 11 times as large,
    so the first loss is near 7, and its gradients spoil the features: docs/presets.md has figures.
    """
    for layer in head_of(model).modules():
        if isinstance(layer, nn.Linear) and layer.weight.std() > 2 * (3 * layer.in_features) ** -0.5:
            layer.reset_parameters()
    return model


def refuse_single_images(recipe: Recipe, model: nn.Module, image_size: int) -> None:
    """Refuse batches of one image if BatchNorm would then see a single value per channel.

    A backbone without BatchNorm, a frozen one and larger images are accepted.
    """
    if recipe.batch_size != 1:
        return
    tried = copy.deepcopy(model).train()
    _, frozen = recipe.unfreeze.set_level(tried, recipe.unfreeze.deepest)
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


def _load(model: nn.Module, weights: dict[str, torch.Tensor], origin: str, image_size: int) -> None:
    """Load all weights except the head's, and log the keys that did not match."""
    tensors = list_backbone_tensors(model)
    weights = match_names(weights, tensors)
    if any(name not in weights or weights[name].shape != value.shape for name, value in tensors.items()):
        weights = _adapt(model, weights, image_size)
    fitting = {name: value for name, value in weights.items() if name in tensors and tensors[name].shape == value.shape}
    missing = sorted(name for name in tensors.keys() - fitting.keys() if not name.endswith("num_batches_tracked"))
    if not fitting or len(missing) > len(tensors) // 2:
        raise UserError(
            f"backbone.weights={origin}: {len(missing)} of the backbone's {len(tensors)} tensors are not in it "
            f"({', '.join(missing[:3])}, …). Give weights of the same architecture."
        )
    for name in missing:
        # A buffer of another size follows from the image size.
        if name in weights and isinstance(tensors[name], nn.Parameter):
            raise UserError(
                f"backbone.weights={origin}: {name} has the shape {tuple(weights[name].shape)} there and "
                f"{tuple(tensors[name].shape)} in {type(model).__name__} for images of {image_size}×{image_size}. "
                "Give weights of the same architecture, or set preprocessing.image_size to that of the weights."
            )
    if missing:
        log.warning(
            "backbone.weights=%s: not loaded: %s (%.1f %% of the backbone's tensors, which start at random)",
            origin,
            ", ".join(missing),
            100 * len(missing) / len(tensors),
        )
    model.missing_weights = len(missing) / len(tensors)  # type: ignore[assignment] # a plain attribute
    model.load_state_dict(fitting, strict=False)


def _adapt(model: nn.Module, weights: dict[str, torch.Tensor], image_size: int) -> dict[str, torch.Tensor]:
    """Rename old keys and stretch position embeddings with the library's own function; other weights stay as they are."""
    # timm's models have such a function beside their class, by convention.
    change = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    try:
        if isinstance(model, VisionTransformer):
            return dict(interpolate_embeddings(image_size, model.patch_size, OrderedDict(weights)))
        return dict(change(dict(weights), model)) if change else weights
    except (AttributeError, KeyError, IndexError, RuntimeError, TypeError, ValueError):
        return weights  # of another architecture: the caller says what does not fit
