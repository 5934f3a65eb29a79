"""Drop path: skip whole residual branches at random, deeper ones more often (Huang et al. 2016, section 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from training.contract.part import Examples, RecipeView
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique
from training.errors import UserError
from training.techniques.model.unfreeze import Unfreeze

if TYPE_CHECKING:
    from torch import nn


class DropPath(Technique):
    interactions: ClassVar[str] = (
        "A regulariser for long trainings of deep backbones, together with mixing and smoothing; in short trainings it costs "
        "accuracy. Frozen blocks drop nothing, so it is refused with unfreeze.level=last."
    )
    examples: ClassVar[Examples] = ({"drop_path": {"rate": 0.1}},)

    rate: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of images that skip the branch of the last block; it rises from 0 in the first. 0: no change.",
        examples=[0.5],
    )

    def apply(self, setup: TrainingSetup) -> None:
        blocks = find_paths(setup.model)
        if not blocks:
            raise UserError(
                f"drop_path.rate={self.rate:g}: {type(setup.model).__name__} has no residual branches that its library can "
                "drop. Use drop_path.rate=0 or another backbone.name."
            )
        for position, block in enumerate(blocks):
            set_rate(block, self.rate * position / max(1, len(blocks) - 1))

    def conflict(self, recipe: RecipeView) -> str | None:
        if self.is_on and recipe.part(Unfreeze).deepest == "last":
            return (
                f"drop_path.rate={self.rate:g} does nothing with unfreeze.level=last, because frozen blocks drop nothing: "
                "set unfreeze.level=most or full, or the rate to 0."
            )
        return None


def find_paths(model: nn.Module) -> list[nn.Module]:
    """Return timm's blocks, or torchvision's StochasticDepth modules, in the order in which images pass them."""
    from torchvision.ops import StochasticDepth

    return [module for module in model.modules() if isinstance(module, StochasticDepth) or _timm_slots(module)]


def _timm_slots(block: nn.Module) -> list[str]:
    """Return the attributes for drop path in a block of timm; each holds a module, an Identity or None."""
    from timm.layers import DropPath as TimmDropPath
    from torch import nn

    slots = ("drop_path", "drop_path1", "drop_path2")
    return [s for s in slots if isinstance(getattr(block, s, 0), TimmDropPath | nn.Identity | None)]


def set_rate(block: nn.Module, rate: float) -> None:
    """Set the share of images, in [0, 1), that skip the branches of a block."""
    from timm.layers import DropPath as TimmDropPath
    from torchvision.ops import StochasticDepth

    if isinstance(block, StochasticDepth):
        block.p = rate
        return
    for slot in _timm_slots(block):
        setattr(block, slot, TimmDropPath(rate))
