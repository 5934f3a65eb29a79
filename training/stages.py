"""What a backbone is made of: stem, stages and head, defined alike for timm and torchvision."""

from __future__ import annotations

from typing import Any

from timm.models._manipulate import group_with_matcher
from torch import nn

from training.errors import UserError

# torchvision's families in the form of timm's `group_matcher`: what is stem, and how blocks are numbered.
_FEATURES = {"stem": r"^features\.0\.", "blocks": r"^features\.(\d+)"}
TORCHVISION_STAGES: dict[str, dict[str, Any]] = {
    "AlexNet": _FEATURES,
    "ConvNeXt": _FEATURES,
    "EfficientNet": {"stem": r"^features\.0\.", "blocks": r"^features\.([1-7])\."},
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
