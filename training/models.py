"""Backbones from timm and torchvision with a new head, and the stages they are made of."""

from __future__ import annotations

import difflib
import logging
from pathlib import Path
from typing import Any

import timm
import torch
import torchvision
from timm.models._manipulate import group_with_matcher
from torch import nn

from training.errors import UserError
from training.recipe import Backbone
from training.weights import fetch_pretrained, read_weights

log = logging.getLogger(__name__)

# torchvision's families in the form of timm's `group_matcher`: what is stem, and how blocks are numbered.
_FEATURES = {"stem": r"^features\.0\.", "blocks": r"^features\.(\d+)"}
TORCHVISION_STAGES: dict[str, dict[str, Any]] = {
    "AlexNet": _FEATURES,
    "ConvNeXt": _FEATURES,
    "EfficientNet": _FEATURES,
    "MobileNetV2": _FEATURES,
    "MobileNetV3": _FEATURES,
    "SqueezeNet": _FEATURES,
    "SwinTransformer": _FEATURES,
    "VGG": _FEATURES,
    "DenseNet": {
        "stem": r"^features\.(?:conv|norm)0",
        "blocks": [(r"^features\.(?:denseblock|transition)(\d+)", None)],
    },
    "MaxVit": {"stem": r"^stem", "blocks": r"^blocks\.(\d+)"},
    "MNASNet": {"stem": r"^layers\.[0-7]\.", "blocks": r"^layers\.(\d+)"},
    "RegNet": {"stem": r"^stem", "blocks": r"^trunk_output\.block(\d+)"},
    "ResNet": {"stem": r"^conv1|bn1", "blocks": r"^layer(\d+)"},
    "ShuffleNetV2": {"stem": r"^conv1", "blocks": r"^stage(\d+)"},
    "VisionTransformer": {
        "stem": r"^conv_proj|class_token|encoder\.pos_embedding",
        "blocks": r"^encoder\.layers\.encoder_layer_(\d+)",
    },
}


def build_model(backbone: Backbone, class_count: int, image_size: int) -> nn.Module:
    """Build a backbone with its weights and a freshly initialised head; initial weights follow torch's global seed.

    The result maps float images of shape (N, 3, image_size, image_size) to logits of shape (N, class_count).

    Raises:
        UserError: an unknown backbone, or weights that cannot be had.
    """
    check_backbone(backbone)
    build = _build_timm if backbone.source == "timm" else _build_torchvision
    model = build(backbone.name, class_count, image_size)
    if backbone.weights == "letters":
        from training.letters import letters_weights

        _load(model, letters_weights(backbone), "letters")
    elif backbone.weights == "pretrained":
        _load(model, fetch_pretrained(backbone), "pretrained")
    elif backbone.weights != "none":
        _load(model, read_weights(Path(backbone.weights), "backbone.weights"), backbone.weights)
    return model


def check_backbone(backbone: Backbone) -> None:
    """Refuse a name that its library does not know, naming the nearest ones."""
    known = timm.list_models() if backbone.source == "timm" else torchvision.models.list_models(torchvision.models)
    if backbone.name.split(".")[0] not in known:
        near = difflib.get_close_matches(backbone.name, known, n=3, cutoff=0.5)
        hint = f" Did you mean {' or '.join(near)}?" if near else f" {backbone.source} lists its models."
        raise UserError(f"backbone.name={backbone.name}: {backbone.source} has no such model.{hint}")
    if backbone.source == "torchvision" and backbone.name in ("googlenet", "inception_v3"):
        raise UserError(
            f"backbone.name={backbone.name}: torchvision trains it with auxiliary heads, which are not supported. "
            "Use backbone.source=timm."
        )


def _build_timm(name: str, class_count: int, image_size: int) -> nn.Module:
    # Models whose position embeddings fix the input size must be told of another.
    config = timm.get_pretrained_cfg(name, allow_unregistered=True)
    size = {"img_size": image_size} if config is not None and config.fixed_input_size else {}
    return timm.create_model(name, pretrained=False, num_classes=class_count, **size)


def _build_torchvision(name: str, class_count: int, image_size: int) -> nn.Module:
    size = {"image_size": image_size} if name.startswith("vit_") else {}
    if name == "maxvit_t":
        size = {"input_size": (image_size, image_size)}
    return torchvision.models.get_model(name, weights=None, num_classes=class_count, **size)


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


def head_of(model: nn.Module) -> nn.Module:
    """The classifier: what turns features into logits."""
    if hasattr(model, "get_classifier"):
        head = model.get_classifier()  # type: ignore[operator]
        return nn.ModuleList(head) if isinstance(head, tuple | list) else head
    kind = nn.Conv2d if type(model).__name__ == "SqueezeNet" else nn.Linear
    return [module for module in model.modules() if isinstance(module, kind)][-1]


def stages_of(model: nn.Module) -> list[list[nn.Parameter]]:
    """Parameters of each stage between stem and head; norms and projections after the last block belong to it.

    Raises:
        UserError: a model whose stages nobody has described.
    """
    if hasattr(model, "group_matcher"):
        matcher = model.group_matcher(coarse=True)  # type: ignore[operator]
    elif (name := type(model).__name__) in TORCHVISION_STAGES:
        matcher = TORCHVISION_STAGES[name]
    else:
        raise UserError(f"unfreeze.level=most: the stages of {name} are not known. Use last or full.")
    groups = list(group_with_matcher(model.named_parameters(), matcher, return_values=True).values())
    head = {id(p) for p in head_of(model).parameters()}
    _stem, *stages = [[p for p in group if id(p) not in head] for group in groups]
    if any(id(p) in head for p in groups[-1]) and len(stages) > 1:
        tail = stages.pop()
        stages[-1] = stages[-1] + tail
    return stages
