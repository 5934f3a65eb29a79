"""The structure of a backbone: stem, stages, blocks and head, defined in the same way for timm and torchvision."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress

import torch
from timm.models._manipulate import group_with_matcher
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import _CHECKPOINT_PREFIX

from training.errors import UserError

# Patterns in the form of timm's `group_matcher`, the stem and the number of each block, for torchvision's model families and
# for those of timm that have no such method, or one without stages.
Matcher = dict[str, str | Sequence[str | tuple[str, None]]]
_FEATURES: Matcher = {"stem": r"^features\.0\.", "blocks": r"^features\.(\d+)"}
STAGES: dict[str, Matcher] = {
    **dict.fromkeys(("AlexNet", "ConvNeXt", "MobileNetV2", "MobileNetV3"), _FEATURES),
    **dict.fromkeys(("SqueezeNet", "SwinTransformer", "VGG"), _FEATURES),
    "EfficientNet": {"stem": r"^features\.0\.", "blocks": r"^features\.([1-7])\."},
    "DenseNet": {
        "stem": r"^features\.(?:conv|norm)0",
        "blocks": [(r"^features\.(?:denseblock|transition)(\d+)", None)],
    },
    "MaxVit": {"stem": r"^stem", "blocks": r"^blocks\.(\d+)"},
    "MNASNet": {"stem": r"^layers\.[0-7]\.", "blocks": r"^layers\.(\d+)"},
    "RegNet": {"stem": r"^stem", "blocks": r"^trunk_output\.block(\d+)"},
    "ResNet": {"stem": r"^conv1|bn1", "blocks": r"^layer(\d+)"},
    "ShuffleNetV2": {"stem": r"^conv1", "blocks": r"^stage(\d+)"},
    "CSATv2": {"stem": r"^stem_dct", "blocks": r"^stages\.(\d+)"},
    "MetaFormer": {"stem": r"^stem", "blocks": r"^stages\.(\d+)"},
    "PoolingVisionTransformer": {"stem": r"^patch_embed|pos_embed|cls_token", "blocks": r"^transformers\.(\d+)"},
    "RDNet": {"stem": r"^stem", "blocks": r"^dense_stages\.(\d+)"},
    "VisionTransformer": {
        "stem": r"^conv_proj|class_token|encoder\.pos_embedding",
        "blocks": r"^encoder\.layers\.encoder_layer_(\d+)",
    },
}


def head_of(model: nn.Module) -> nn.Module:
    """Return the classifier: the module from features to logits."""
    if hasattr(model, "get_classifier"):
        head = model.get_classifier()  # type: ignore[operator]
        return nn.ModuleList(head) if isinstance(head, tuple | list) else head
    layer_class = nn.Conv2d if type(model).__name__ == "SqueezeNet" else nn.Linear
    return [module for module in model.modules() if isinstance(module, layer_class)][-1]


def list_backbone_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the tensors of a model by name, not detached, without the parameters of its head."""
    head = {id(parameter) for parameter in head_of(model).parameters()}
    return {name: value for name, value in model.state_dict(keep_vars=True).items() if id(value) not in head}


def stages_of(model: nn.Module) -> list[list[nn.Parameter]]:
    """Return the parameters of each stage between stem and head.

    Norms and projections after the last block belong to the last stage.
    """
    if (matcher := _matcher_of(model, coarse=True)) is None:
        raise UserError(
            f"unfreeze.level: the stages of {type(model).__name__} are not known. Use last, norm_bias or full."
        )
    groups = list(group_with_matcher(model.named_parameters(), matcher, return_values=True).values())
    head = {id(p) for p in head_of(model).parameters()}
    _stem, *stages = [[p for p in group if id(p) not in head] for group in groups]
    if any(id(p) in head for p in groups[-1]) and len(stages) > 1:
        tail = stages.pop()
        stages[-1] = stages[-1] + tail
    return stages


def blocks_of(model: nn.Module) -> list[str]:
    """Return the names of the blocks in the stages, each a module that is called; empty if the blocks are not known."""
    matcher = _matcher_of(model, coarse=False) or {}
    blocks = matcher.get("blocks", [])
    patterns = [blocks] if isinstance(blocks, str) else [p if isinstance(p, str) else p[0] for p in blocks]
    modules, head = dict(model.named_modules()), set(head_of(model).parameters())
    names: dict[str, None] = {}
    for parameter, _ in model.named_parameters():
        block_match = next((match for pattern in patterns if (match := re.match(pattern, parameter))), None)
        for name in _split(block_match[0].rstrip("."), modules) if block_match else ():
            if _is_block(modules[name]) and head.isdisjoint(modules[name].parameters()):
                names[name] = None
    return list(names)


def _split(name: str, modules: dict[str, nn.Module]) -> list[str]:
    """Return the blocks of a stage that is a plain sequence of blocks, else the stage itself."""
    if name not in modules:
        return []
    children = [f"{name}.{child}" for child, _ in modules[name].named_children()]
    is_sequence = type(modules[name]).forward is nn.Sequential.forward
    return children if is_sequence and any(_is_block(modules[child]) for child in children) else [name]


def _is_block(module: nn.Module) -> bool:
    """Whether a module has children and is called itself; a ModuleList is not called."""
    return any(module.children()) and type(module).forward is not nn.Module.forward


def _matcher_of(model: nn.Module, coarse: bool) -> Matcher | None:
    if hasattr(model, "group_matcher"):
        with suppress(AssertionError):  # timm's RDNet has blocks, but no stages
            return model.group_matcher(coarse=coarse)  # type: ignore[operator]
    return STAGES.get(type(model).__name__)


def layers_of(model: nn.Module) -> dict[nn.Parameter, int]:
    """Return the layer of each parameter, from 0 for the stem up to the head.

    A layer is a block in timm's models, and a stage in torchvision's.
    """
    if (matcher := _matcher_of(model, coarse=False)) is None:
        raise UserError(f"layer_decay.factor: the layers of {type(model).__name__} are not known. Set it to 1.0.")
    named = [(name.replace(_CHECKPOINT_PREFIX, ""), parameter) for name, parameter in model.named_parameters()]
    layers = group_with_matcher(iter(named), matcher, reverse=True)
    return {parameter: layers[name] for name, parameter in named}


@torch.no_grad()
def refuse_size(model: nn.Module, side: int, field: str) -> None:
    """Refuse images (3, side, side) that the model cannot classify."""
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
