"""Build backbones without weights, of timm, of torchvision or of the user's own, with a head for the data's classes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable

import timm
import torch
import torchvision
from timm.layers import DropPath
from torch import nn
from torchvision.ops import StochasticDepth

from training.contract.own_parts import list_own, locate_fault
from training.contract.specs import Backbone, OwnBackbone
from training.errors import UserError, describe_error


def check_backbone(backbone: Backbone) -> None:
    """Refuse a name that does not exist in its library, and suggest the nearest ones."""
    if backbone.source == "own" and backbone.name not in (own := list_own("backbone")):
        loaded = f"loaded are {', '.join(own)}" if own else "none is loaded"
        raise UserError(f"backbone.name={backbone.name} with source=own: {loaded}. Give its file with --plugin.")
    is_plain = backbone.source == "timm" and "." not in backbone.name  # to list all of timm's takes 20 ms
    if not (is_plain and timm.is_model(backbone.name)) and backbone.name not in (known := _list_known(backbone)):
        near = difflib.get_close_matches(backbone.name, known, n=3, cutoff=0.5)
        listed = f"The documentation of {backbone.source} lists its models."
        hint = f"Did you mean {' or '.join(near)}?" if near else listed
        raise UserError(f"backbone.name={backbone.name}: {backbone.source} has no such model. {hint}")
    if backbone.source == "torchvision" and backbone.name in ("googlenet", "inception_v3"):
        raise UserError(
            f"backbone.name={backbone.name}: torchvision trains it with auxiliary heads, which are not supported. "
            "Use backbone.source=timm."
        )


def _list_known(backbone: Backbone) -> list[str]:
    if backbone.source == "own":
        return list(list_own("backbone"))
    if backbone.source == "torchvision":
        return torchvision.models.list_models(torchvision.models)
    architecture, _, tag = backbone.name.partition(".")
    if not tag:
        return timm.list_models()
    return [*timm.list_models(), *timm.list_pretrained(f"{architecture}.*")]


def build_bare(
    backbone: Backbone, class_count: int, image_size: int, pretrained: dict[str, object] | None = None
) -> nn.Module:
    """Build a backbone with random weights, which depend on torch's global seed, or with weights that timm adapts.

    `pretrained` are timm's changes of its configuration, with the weights as `state_dict`.
    """
    check_backbone(backbone)
    try:
        if backbone.source == "own":
            model = build_own(backbone, class_count, image_size)
        else:
            build: Callable[..., nn.Module] = (
                timm.create_model if backbone.source == "timm" else torchvision.models.get_model
            )
            weights = {"pretrained": True, "pretrained_cfg_overlay": pretrained} if pretrained else {}
            model = build(backbone.name, num_classes=class_count, **size_arguments(backbone, image_size), **weights)
            _switch_dropping_off(model)
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


def _switch_dropping_off(model: nn.Module) -> None:
    """Set dropout and drop path to 0, which some models have by default, so that all compare."""
    for module in model.modules():
        if isinstance(module, nn.Dropout | StochasticDepth):
            module.p = 0.0
        elif isinstance(module, DropPath):
            module.drop_prob = 0.0


def build_own(backbone: Backbone, class_count: int, image_size: int) -> nn.Module:
    """Build a backbone of the user's own, with random weights and with timm's methods for its head and stages."""
    try:
        own_backbone: OwnBackbone = list_own("backbone")[backbone.name]()
        model = own_backbone.build(class_count, image_size)
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - any fault of the user's code
        place = locate_fault(error)
        raise UserError(
            f"backbone.name={backbone.name}: its build raised {describe_error(error)}{f' in {place}' if place else ''}. "
            "Correct it."
        ) from None
    if not isinstance(model, nn.Module):
        raise UserError(
            f"backbone.name={backbone.name}: its build returns a value of type {type(model).__name__}, not a torch module."
        )
    if hasattr(model, "get_classifier") and hasattr(model, "group_matcher"):
        return model
    names = dict(model.named_modules())
    for name in (own_backbone.head, own_backbone.stem, *own_backbone.stages):
        if not name or name not in names:
            raise UserError(
                f"backbone.name={backbone.name}: {name!r} is not the name of one of its modules. Declare head, stem and "
                f"stages; there are {', '.join(name for name, _ in model.named_children())}."
            )
    return _declare(model, own_backbone)


def own_pretrained(backbone: Backbone) -> dict[str, torch.Tensor]:
    """Return the pretrained weights of a backbone of the user's own."""
    if (weights := list_own("backbone")[backbone.name]().pretrained()) is None:
        raise UserError(
            f"backbone.weights=pretrained: {backbone.name} is your own and has no pretrained weights. Use none, letters or the "
            "path of a file, or write its method pretrained."
        )
    return weights


def _declare(model: nn.Module, own_backbone: OwnBackbone) -> nn.Module:
    """Add timm's two methods to the model's class, which a copy of the model keeps."""
    matcher: dict[str, object] = {
        "stem": f"^{re.escape(own_backbone.stem)}\\.",
        "blocks": [(f"^{re.escape(name)}\\.", (number,)) for number, name in enumerate(own_backbone.stages)],
    }

    def get_classifier(self: nn.Module) -> nn.Module:
        return self.get_submodule(own_backbone.head)

    def group_matcher(self: nn.Module, coarse: bool = False) -> dict[str, object]:
        return matcher

    model_class = type(model)
    methods = {"get_classifier": get_classifier, "group_matcher": group_matcher}
    model.__class__ = type(model_class.__name__, (model_class,), methods)
    return model
