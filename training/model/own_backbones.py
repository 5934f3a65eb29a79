"""Backbones of the user's own: their head and stages are declared by name."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import nn

from training.contract.specs import OWN_BACKBONES, Backbone, OwnBackbone
from training.errors import UserError


def build_own(backbone: Backbone, class_count: int, image_size: int) -> nn.Module:
    """Build a backbone of the user's own, with random weights and with timm's methods for its head and stages.

    Raises:
        UserError: its `build` fails, or a declared name is not one of its modules.
    """
    own, _ = OWN_BACKBONES[backbone.name]
    try:
        model = own.build(class_count, image_size)
    except UserError:
        raise
    except Exception as error:  # noqa: BLE001 - any fault of the user's code
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise UserError(f"backbone.name={backbone.name}: its build raised {reason}. Correct it.") from None
    if not isinstance(model, nn.Module):
        raise UserError(
            f"backbone.name={backbone.name}: its build returns a value of type {type(model).__name__}, not a torch module."
        )
    if hasattr(model, "get_classifier") and hasattr(model, "group_matcher"):
        return model
    names = dict(model.named_modules())
    for name in (own.head, own.stem, *own.stages):
        if not name or name not in names:
            raise UserError(
                f"backbone.name={backbone.name}: {name!r} is not the name of one of its modules. Declare head, stem and "
                f"stages; there are {', '.join(name for name, _ in model.named_children())}."
            )
    return _declare(model, own)


def own_pretrained(backbone: Backbone) -> dict[str, torch.Tensor]:
    """Return the pretrained weights of a backbone of the user's own.

    Raises:
        UserError: it has none.
    """
    weights = OWN_BACKBONES[backbone.name][0].pretrained()
    if weights is None:
        raise UserError(
            f"backbone.weights=pretrained: {backbone.name} is your own and has no pretrained weights. Use none, letters or the "
            "path of a file, or write its method pretrained."
        )
    return weights


def _declare(model: nn.Module, own: OwnBackbone) -> nn.Module:
    """Add timm's two methods to the model's class, which a copy of the model keeps."""
    matcher: dict[str, Any] = {
        "stem": f"^{re.escape(own.stem)}\\.",
        "blocks": [(f"^{re.escape(name)}\\.", (number,)) for number, name in enumerate(own.stages)],
    }

    def get_classifier(self: nn.Module) -> nn.Module:
        return self.get_submodule(own.head)

    def group_matcher(self: nn.Module, coarse: bool = False) -> dict[str, Any]:
        return matcher

    kind = type(model)
    methods = {"get_classifier": get_classifier, "group_matcher": group_matcher}
    model.__class__ = type(kind.__name__, (kind,), methods)
    return model
