"""Attention pooling: the head weighs all positions by a learnt query, not by their mean (Lee et al. 2019, section 3.2).

On a frozen backbone this is an attentive probe (El-Nouby et al. 2024).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from training.contract.part import Examples
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique
from training.contract.view import RecipeView
from training.errors import UserError

if TYPE_CHECKING:
    from torch import nn


class AttentionPooling(Technique):
    interactions: ClassVar[str] = (
        "It is for unfreeze.level=last, where the mean of the positions loses what they say apart; the whole head trains from "
        "a random start, so give it a lower rate than a linear one. Stored features are then those of all positions and take "
        "more space. With one position, as in most convolutional backbones on images of 32 pixels, it only adds an MLP. It "
        "needs backbone.source=timm. An export of it is read with this project or from its ONNX file, not by timm alone."
    )
    is_in_model: ClassVar[bool] = True
    examples: ClassVar[Examples] = ({"attention_pooling": {"heads": 4}, "unfreeze": {"level": "last"}},)

    heads: int = Field(
        0, ge=0, le=1024, description="Attention heads. 0: the pooling and the head of the backbone.", examples=[8]
    )

    def apply(self, setup: TrainingSetup) -> None:
        self.rebuild(setup.model, setup.class_count, setup.image_size)

    def rebuild(self, model: nn.Module, class_count: int, image_size: int) -> None:
        attach_head(model, class_count, self.heads, image_size)

    def conflict(self, recipe: RecipeView) -> str | None:
        if self.heads and (source := recipe.backbone.source) != "timm":
            return f"attention_pooling.heads={self.heads} does not fit backbone.source={source}: use timm, or heads=0."
        return None


def attach_head(model: nn.Module, class_count: int, heads: int, image_size: int) -> nn.Module:
    """Put timm's attention pooling and a new linear layer in the place of the pooling and the head of a model of timm."""
    import torch

    from training.model.attentive_head import AttentiveHead

    mode = model.training
    try:
        model.reset_classifier(0, "")  # type: ignore[operator]
        with torch.no_grad():
            shape = model.eval()(torch.zeros(1, 3, image_size, image_size)).shape
        name = next(name for name, module in model.named_modules() if module is model.get_classifier())  # type: ignore[operator]
        width: int = getattr(model, "head_hidden_size" if hasattr(model, "head_hidden_size") else "num_features")
        if len(shape) < 3 or width not in (shape[1], shape[-1]):
            raise ValueError
    except (AssertionError, RuntimeError, StopIteration, TypeError, ValueError):  # each model raises different errors
        raise UserError(
            f"attention_pooling.heads={heads}: {type(model).__name__} does not hand all positions to one head. Use heads=0 or "
            "another backbone.name."
        ) from None
    if width % heads:
        raise UserError(
            f"attention_pooling.heads={heads}: the {width} features of {type(model).__name__} cannot be divided by it. Use a "
            "divisor."
        )
    head = AttentiveHead(width, class_count, heads, channels_first=len(shape) == 4 and shape[1] == width)
    model.set_submodule(name, head)
    model.num_classes = class_count  # type: ignore[assignment] # a plain attribute
    return model.train(mode)
