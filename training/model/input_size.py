"""Whether a model takes images of another size than the one it was built for."""

from __future__ import annotations

import torch
from torch import nn

from training.errors import UserError


@torch.no_grad()
def refuse_size(model: nn.Module, side: int, field: str) -> None:
    """Refuse images (3, side, side) that the model cannot classify.

    Raises:
        UserError: the model needs images of one size. `field` is the field of the recipe with its value.
    """
    modes = {module: module.training for module in model.modules()}
    try:
        model.eval()(torch.zeros(1, 3, side, side))
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:  # each model raises different errors
        reason = (str(error).strip().split("\n")[0] or type(error).__name__).rstrip(".")
        raise UserError(
            f"{field}: {type(model).__name__} cannot classify images of {side}×{side} pixels ({reason}). Leave it at 1.0, "
            "or use a convolutional backbone."
        ) from None
    finally:
        for module, mode in modes.items():
            module.training = mode
