"""LoRA: train low-rank adapters beside frozen weights instead of the weights (Hu et al. 2022, section 4.1).

With `dora`, a length of each row is trained too (Liu et al. 2024, section 4.1). `rank_stabilised` divides by the root of
the rank (Kalajdzievski 2023, section 3).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from training.contract.part import Examples, RecipeView
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique
from training.errors import UserError
from training.techniques.model.unfreeze import Unfreeze

if TYPE_CHECKING:
    import torch
    from torch import nn


ALPHA = 8.0


class Lora(Technique):
    interactions: ClassVar[str] = (
        "Adapters are added to the layers that unfreeze.level freezes: with last and norm_bias to the whole backbone, with "
        "most to its first half, while the later half trains normally. With full nothing is frozen, and lora is refused. With"
        " last and most, dropout and drop path stay off in the frozen layers, and their BatchNorm keeps its statistics unless"
        " unfreeze.adapt_statistics is on. Grouped and depthwise convolutions get no adapter; neither do layers whose weights"
        " are read without a call, such as attention in torchvision's ViT and Swin. dora computes each adapted weight as a "
        "whole in every pass, which takes time and memory; the exported model is as fast as any other. With rank_stabilised, "
        "one alpha suits several ranks."
    )
    examples: ClassVar[Examples] = (
        {"lora": {"rank": 8}, "unfreeze": {"level": "last"}},
        {"lora": {"rank": 8, "dora": True}, "unfreeze": {"level": "last"}},
        {"lora": {"rank": 8, "rank_stabilised": True}, "unfreeze": {"level": "last"}},
    )

    rank: int = Field(0, ge=0, le=4096, description="Rank of each adapter; 0: no adapters.", examples=[2])
    alpha: float = Field(
        ALPHA, gt=0, description="Weight of the adapters: their product is multiplied by alpha / rank.", examples=[2.0]
    )
    dora: bool = Field(
        False,
        description="Train direction and length of each row of a weight separately (weight-decomposed, DoRA).",
        examples=[True],
    )
    rank_stabilised: bool = Field(
        False, description="Multiply by alpha / √rank, not alpha / rank (rsLoRA).", examples=[True]
    )

    def apply(self, setup: TrainingSetup) -> None:
        from peft import LoraConfig, inject_adapter_in_model

        names = find_frozen_layers(setup.model, setup.image_size)
        if not names:
            raise UserError(
                f"lora.rank={self.rank}: {type(setup.model).__name__} has no frozen linear layer or ungrouped convolution "
                "to adapt. Use lora.rank=0."
            )
        if self.dora:
            refuse_zero_rows(setup.model, names)
        trained = [parameter for parameter in setup.model.parameters() if parameter.requires_grad]
        # A pattern is needed because a list also matches every name that ends with one of its names.
        pattern = "|".join(map(re.escape, names))
        config = LoraConfig(
            r=self.rank,
            lora_alpha=self.alpha,  # type: ignore[arg-type]
            target_modules=pattern,
            use_dora=self.dora,
            use_rslora=self.rank_stabilised,
        )
        inject_adapter_in_model(config, setup.model)
        for parameter in trained:  # peft has frozen everything except its adapters
            parameter.requires_grad_(True)
        setup.plain_weights = merge_adapters

    def conflict(self, recipe: RecipeView) -> str | None:
        if self.is_on and self.rank == 0:
            fields = [f"lora.{name}" for name, value in self if value != getattr(Lora(), name)]
            return f"{' and '.join(fields)} {'do' if fields[1:] else 'does'} nothing while lora.rank is 0: set a rank."
        if self.rank and recipe.part(Unfreeze).level == "full":
            return (
                f"lora.rank={self.rank} adapts frozen layers, and unfreeze.level=full freezes none: "
                "set unfreeze.level=last or most."
            )
        return None


def find_frozen_layers(model: nn.Module, image_size: int) -> list[str]:
    """Return the names of frozen linear layers and ungrouped convolutions that the model calls for an image."""
    import torch
    from torch import nn

    called: list[nn.Module] = []
    layers = {
        name: module
        for name, module in model.named_modules()
        # Subclasses may compute differently, which peft would ignore.
        if type(module) in (nn.Linear, nn.Conv2d) and getattr(module, "groups", 1) == 1
        if not module.weight.requires_grad  # type: ignore[union-attr]
    }
    hooks = [layer.register_forward_hook(lambda layer, *_: called.append(layer)) for layer in layers.values()]
    with torch.no_grad():
        model.eval()(torch.zeros(1, 3, image_size, image_size))
    model.train()
    for hook in hooks:
        hook.remove()
    return [name for name, layer in layers.items() if any(layer is one for one in called)]


def refuse_zero_rows(model: nn.Module, names: list[str]) -> None:
    """Refuse layers in which all weights of an output are zero: such a row has no direction.

    Raises:
        UserError: one of the named layers has such a row.
    """
    for name in names:
        weight = model.get_submodule(name).weight
        if not weight.flatten(1).any(1).all():  # type: ignore[operator, union-attr]
            raise UserError(
                f"lora.dora=true: the layer {name} of {type(model).__name__} has outputs whose weights are all zero, so they "
                "have no direction. Use lora.dora=false."
            )


def merge_adapters(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the state dict of the plain model, with each adapter merged into its weight by peft."""
    from copy import deepcopy

    from peft.tuners.lora import LoraLayer
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import _CHECKPOINT_PREFIX

    state = {
        name.replace(".base_layer.", "."): value for name, value in model.state_dict().items() if ".lora_" not in name
    }
    for name, layer in model.named_modules():
        if isinstance(layer, LoraLayer):
            merged = deepcopy(layer)  # peft merges in place, and taking an adapter out again is not exact
            merged.merge()  # type: ignore[operator]
            state[f"{name.replace(_CHECKPOINT_PREFIX, '')}.weight"] = merged.get_base_layer().weight.detach()  # type: ignore[operator]
    return state
