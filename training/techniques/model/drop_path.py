"""Drop path: skip whole residual branches at random, deeper ones more often (Huang et al. 2016, section 3)."""

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


class DropPath(Technique):
    interactions: ClassVar[str] = (
        "A regulariser for long trainings of deep backbones, together with mixing and smoothing; in short trainings it costs "
        "accuracy. The rates of the blocks are those that timm gives them for its drop_path_rate. Frozen blocks drop nothing, "
        "so it is refused with unfreeze.level=last."
    )
    examples: ClassVar[Examples] = ({"drop_path": {"rate": 0.1}},)

    rate: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of images that skip the branch of the last block; earlier blocks have less. 0: no change.",
        examples=[0.5],
    )

    def apply(self, setup: TrainingSetup) -> None:
        paths = build_paths(setup.model, self.rate)
        for name, path in paths.items():
            parent, _, attribute = name.rpartition(".")
            setattr(setup.model.get_submodule(parent), attribute, path)
        if not paths and not set_rates(setup.model, self.rate):
            raise UserError(
                f"drop_path.rate={self.rate:g}: {type(setup.model).__name__} has no residual branches that its library can "
                "drop. Use drop_path.rate=0 or another backbone.name."
            )

    def conflict(self, recipe: RecipeView) -> str | None:
        if self.is_on and recipe.unfreeze.deepest == "last":
            return (
                f"drop_path.rate={self.rate:g} does nothing with unfreeze.level=last, because frozen blocks drop nothing: "
                "set unfreeze.level=most or full, or the rate to 0."
            )
        return None


def build_paths(model: nn.Module, rate: float) -> dict[str, nn.Module]:
    """Return the drop path modules, by their names, that timm builds for this architecture; none if it takes no rate."""
    import timm
    import torch
    from timm.layers import DropPath as TimmDropPath

    architecture = getattr(model, "pretrained_cfg", {}).get("architecture")
    if architecture is None:
        return {}
    try:
        with torch.device("meta"):  # without memory and without random numbers
            built = timm.create_model(architecture, drop_path_rate=rate)
    except TypeError:  # it does not have this argument
        return {}
    return {name: module for name, module in built.named_modules() if isinstance(module, TimmDropPath)}


def set_rates(model: nn.Module, rate: float) -> bool:
    """Set the rates of torchvision's modules, from 0 in the first to `rate` in the last; False if there are none."""
    from torchvision.ops import StochasticDepth

    paths = [module for module in model.modules() if isinstance(module, StochasticDepth)]
    for position, path in enumerate(paths):
        path.p = rate * position / max(1, len(paths) - 1)
    return bool(paths)
