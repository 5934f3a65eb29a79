"""LoRA: train low-rank adapters beside frozen weights instead of the weights (Hu et al. 2022, section 4.1).

With `dora`, a length of each row is trained too (Liu et al. 2024, section 4.1). `rank_stabilised` divides by the root of
the rank (Kalajdzievski 2023, section 3). `b_rate` gives B a higher rate than A (LoRA+, Hayou et al. 2024, section 4).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from training.contract.part import Examples
from training.contract.setup import Adapters, TrainingSetup
from training.contract.technique import Technique
from training.contract.view import RecipeView
from training.errors import UserError

if TYPE_CHECKING:
    import torch
    from peft.tuners.lora import LoraLayer
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
        "one alpha suits several ranks. With b_rate, B gets the base rate, as the head does, and A a share of it; layer_decay "
        "and head_lr multiply both. dropout draws at the adapters alone. averaging takes the mean of the merged weights."
    )
    examples: ClassVar[Examples] = (
        {"lora": {"rank": 8}, "unfreeze": {"level": "last"}},
        {"lora": {"rank": 8, "dora": True}, "unfreeze": {"level": "last"}},
        {
            "lora": {"rank": 8, "rank_stabilised": True},
            "unfreeze": {"level": "last"},
            "optimizer": {"name": "momentum", "lr": 0.01},  # its scale is larger by the root of the rank
        },
        {"lora": {"rank": 8, "b_rate": 16.0}, "unfreeze": {"level": "last"}},
        {"lora": {"rank": 8, "dropout": 0.1}, "unfreeze": {"level": "last"}},
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
    rank_stabilised: bool = Field(False, description="Use alpha / √rank, not alpha / rank (rsLoRA).", examples=[True])
    b_rate: float = Field(
        1.0,
        ge=1,
        le=1e6,
        description="Learning rate of B, which starts at zero, divided by that of A (LoRA+).",
        examples=[16.0],
    )
    dropout: float = Field(
        0.0, ge=0, lt=1, description="Share of the inputs of each adapter that are zero in training.", examples=[0.3]
    )

    def apply(self, setup: TrainingSetup) -> None:
        from peft import LoraConfig, inject_adapter_in_model

        if not (names := find_frozen_layers(setup.model, setup.image_size)):
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
            lora_dropout=self.dropout,
        )
        inject_adapter_in_model(config, setup.model)
        for parameter in trained:  # peft has frozen everything except its adapters
            parameter.requires_grad_(True)
        if self.b_rate > 1:
            of_a = [parameter for name, parameter in setup.model.named_parameters() if ".lora_A." in name]
            setup.scale_rates(dict.fromkeys(of_a, 1 / self.b_rate))
        if self.dropout:
            for frozen in (setup.frozen, *(modules for _, modules in setup.unfreeze_steps.values())):
                frozen[:] = leave_out_dropout(frozen)
        setup.plain_weights = merge_adapters
        setup.adapters = Adapters(fold_adapters, clear_adapters)

    @property
    def breaks_features(self) -> str:
        return "it trains inside the frozen part"

    def conflict(self, recipe: RecipeView) -> str | None:
        if self.is_on and self.rank == 0:
            fields = [f"lora.{name}" for name, value in self if value != getattr(Lora(), name)]
            return f"{' and '.join(fields)} {'do' if fields[1:] else 'does'} nothing while lora.rank is 0: set a rank."
        if self.rank and recipe.unfreeze.level == "full":
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
    return [name for name, layer in layers.items() if any(layer is module for module in called)]


def leave_out_dropout(frozen: list[nn.Module]) -> list[nn.Module]:
    """Return the frozen modules and those in them, except the adapters' dropout and what contains it.

    In eval mode, as frozen modules are, the dropout would be off.
    """
    from peft.tuners.lora import LoraLayer

    inner = [module for outer in frozen for module in outer.modules()]
    dropouts = {part for layer in inner if isinstance(layer, LoraLayer) for part in layer.lora_dropout.modules()}
    return [module for module in inner if dropouts.isdisjoint(module.modules())]


def refuse_zero_rows(model: nn.Module, names: list[str]) -> None:
    """Refuse layers in which all weights of an output are zero: such a row has no direction."""
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

    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import _CHECKPOINT_PREFIX

    state = {
        name.replace(".base_layer.", "."): value for name, value in model.state_dict().items() if ".lora_" not in name
    }
    for name, layer in find_adapted(model):
        merged = deepcopy(layer)  # peft merges in place, and taking an adapter out again is not exact
        merged.merge()  # type: ignore[operator]
        state[f"{name.replace(_CHECKPOINT_PREFIX, '')}.weight"] = merged.get_base_layer().weight.detach()  # type: ignore[operator]
    return state


def find_adapted(model: nn.Module) -> list[tuple[str, LoraLayer]]:
    """Return the layers with an adapter, by their names."""
    from peft.tuners.lora import LoraLayer

    return [(name, layer) for name, layer in model.named_modules() if isinstance(layer, LoraLayer)]


def fold_adapters(model: nn.Module) -> None:
    """Move each adapter into the weight beside it, in place; the model computes the same as before."""
    import torch

    with torch.no_grad():
        for _, layer in find_adapted(model):
            weight: torch.Tensor = layer.get_base_layer().weight  # type: ignore[operator, assignment]
            weight_data = weight.data
            layer.merge()  # type: ignore[operator]
            weight_data.copy_(weight.data)  # with dora, peft puts the merged weight into a new tensor
            weight.data = weight_data
            layer.merged_adapters.clear()
    clear_adapters(model)


def clear_adapters(model: nn.Module) -> None:
    """Make each adapter add nothing: B is zero, and the lengths of `dora` are those of the weight's rows."""
    import torch

    with torch.no_grad():
        for _, layer in find_adapted(model):
            for b in layer.lora_B.values():
                b.weight.zero_()  # type: ignore[operator, union-attr]
            for lengths in layer.lora_magnitude_vector.values():
                weight = layer.get_base_layer().weight
                lengths.weight.copy_(lengths.get_weight_norm(weight, torch.zeros_like(weight), 1.0))  # type: ignore
