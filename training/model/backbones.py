"""Build backbones of timm and torchvision without weights, with a head for the data's classes."""

from __future__ import annotations

import difflib
from typing import Any

import timm
import torch
import torchvision
from torch import nn
from torchvision.ops import StochasticDepth

from training.contract.specs import OWN_BACKBONES, Backbone
from training.errors import UserError
from training.model.own_backbones import build_own


def check_backbone(backbone: Backbone) -> None:
    """Refuse a name that does not exist in its library, and suggest the nearest ones.

    Raises:
        UserError: the name is unknown, or the model needs a special training loop.
    """
    if backbone.source == "own" and backbone.name not in OWN_BACKBONES:
        loaded = f"loaded are {', '.join(OWN_BACKBONES)}" if OWN_BACKBONES else "none is loaded"
        raise UserError(f"backbone.name={backbone.name} with source=own: {loaded}. Give its file with --with.")
    known = _list_known(backbone)
    if backbone.name not in known:
        near = difflib.get_close_matches(backbone.name, known, n=3, cutoff=0.5)
        hint = (
            f" Did you mean {' or '.join(near)}?"
            if near
            else f" The documentation of {backbone.source} lists its models."
        )
        raise UserError(f"backbone.name={backbone.name}: {backbone.source} has no such model.{hint}")
    if backbone.source == "torchvision" and backbone.name in ("googlenet", "inception_v3"):
        raise UserError(
            f"backbone.name={backbone.name}: torchvision trains it with auxiliary heads, which are not supported. "
            "Use backbone.source=timm."
        )


def _list_known(backbone: Backbone) -> list[str]:
    if backbone.source == "own":
        return list(OWN_BACKBONES)
    if backbone.source == "torchvision":
        return torchvision.models.list_models(torchvision.models)
    architecture, _, tag = backbone.name.partition(".")
    if not tag:
        return timm.list_models()
    return [*timm.list_models(), *timm.list_pretrained(f"{architecture}.*")]


def build_bare(backbone: Backbone, class_count: int, image_size: int, **arguments: Any) -> nn.Module:
    """Build a backbone with random weights, which depend on torch's global seed; `arguments` go to timm.

    Raises:
        UserError: the backbone is unknown, or does not accept images of this size (image_size × image_size pixels).
    """
    check_backbone(backbone)
    try:
        if backbone.source == "own":
            model = build_own(backbone, class_count, image_size)
        else:
            build = _build_timm if backbone.source == "timm" else _build_torchvision
            model = build(backbone.name, class_count, **size_arguments(backbone, image_size), **arguments)
        with torch.no_grad():
            shape = model.eval()(torch.zeros(1, 3, image_size, image_size)).shape
        if shape != (1, class_count):
            raise ValueError(f"its output for one image has the shape {tuple(shape)}")
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:  # each model raises different errors
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise UserError(
            f"backbone.name={backbone.name} cannot classify images of {image_size}×{image_size} ({reason}). "
            "Set another preprocessing.image_size or backbone.name."
        ) from None
    return model.train()


def size_arguments(backbone: Backbone, image_size: int) -> dict[str, int | tuple[int, int]]:
    """Return the arguments that set the input size in the library's constructor; most models accept any size."""
    if backbone.source == "timm":
        # Models whose position embeddings fix the input size need another size as an argument.
        config = timm.get_pretrained_cfg(backbone.name, allow_unregistered=True)
        return {"img_size": image_size} if config is not None and config.fixed_input_size else {}
    if backbone.source == "own":
        return {}
    if backbone.name == "maxvit_t":
        return {"input_size": (image_size, image_size)}
    return {"image_size": image_size} if backbone.name.startswith("vit_") else {}


def _build_timm(name: str, class_count: int, **arguments: Any) -> nn.Module:
    return timm.create_model(name, num_classes=class_count, **arguments)


def _build_torchvision(name: str, class_count: int, **arguments: Any) -> nn.Module:
    model = torchvision.models.get_model(name, weights=None, num_classes=class_count, **arguments)
    for module in model.modules():
        # timm builds its models without dropout and drop path. Start from none here too, so that both libraries compare.
        if isinstance(module, nn.Dropout | StochasticDepth):
            module.p = 0.0
    return model
