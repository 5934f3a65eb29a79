"""Unfreeze level: how many stages of a pretrained backbone train (Yosinski et al. 2014, section 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from training.contract.part import MOST, Examples, RecipeView
from training.contract.setup import TrainingSetup, UnfreezeStep
from training.contract.technique import Technique

if TYPE_CHECKING:
    from torch import nn


LEVELS = ("last", "most", "full")


class Unfreeze(Technique):
    interactions: ClassVar[str] = (
        "It has little use without pretrained weights. last is ahead after few epochs and seldom at the end, so early stopping "
        "favours it unless trials are compared within their level. The fewer parameters train, the higher the learning rate "
        "can be, and the less regularisation is needed. With milestones, level is the one at the start. to_full trains the "
        "head first, so that its random start does not distort pretrained features (Kumar et al. 2022). The schedule ignores "
        "milestones; choose its restarts so that they coincide."
    )
    examples: ClassVar[Examples] = (
        {"unfreeze": {"level": "last"}},
        {"unfreeze": {"level": "most"}},
        {"unfreeze": {"level": "last", "milestones": [1]}},
    )

    level: Literal["last", "most", "full"] = Field(
        "full", description="last: the head trains; most: the later half of the stages too; full: everything."
    )
    milestones: list[Annotated[int, Field(ge=1, le=MOST)]] = Field(
        [],
        description="Epochs after which the next level trains (Howard & Ruder 2018): from last, [3, 6] means most after 3 and "
        "full after 6.",
    )
    to_full: bool = Field(
        False,
        description="From last, the milestone unfreezes everything at once (linear probing, then fine-tuning).",
        examples=[True],
    )
    milestone_lr: Literal["keep", "auto", "auto/3", "auto*3"] = Field(
        "keep",
        description="Base rate from each milestone on: keep it, or find it again like optimizer.lr=auto.",
        examples=["auto/3"],
    )

    @property
    def deepest(self) -> str:
        """The level at the end of training."""
        return self.levels[-1]

    @property
    def levels(self) -> tuple[str, ...]:
        """The level at the start, and that after each milestone."""
        if self.to_full:
            return self.level, "full"
        first = LEVELS.index(self.level)
        return LEVELS[first : first + len(self.milestones) + 1]

    def apply(self, setup: TrainingSetup) -> None:
        from training.callbacks.unfreezing import UnfreezeAtMilestones

        # In reverse order, so that the model ends at the first level.
        steps = [set_level(setup.model, level) for level in reversed(self.levels)][::-1]
        setup.frozen.extend(steps[0][1])
        if self.milestones:
            setup.unfreeze_steps.update(zip(self.milestones, steps[1:], strict=True))
            setup.callbacks.append(UnfreezeAtMilestones(setup.frozen, setup.unfreeze_steps))

    def conflict(self, recipe: RecipeView) -> str | None:
        if self.to_full and (self.level != "last" or len(self.milestones) != 1):
            return (
                f"unfreeze.to_full=true does not fit unfreeze.level={self.level} with milestones={self.milestones}: it needs "
                "level=last and one milestone. Or leave to_full out."
            )
        if not self.milestones:
            if self.milestone_lr == "keep":
                return None
            return f"unfreeze.milestone_lr={self.milestone_lr} does nothing without unfreeze.milestones: set them."
        field = f"unfreeze.milestones={self.milestones}"
        if len(self.milestones) > 2 - LEVELS.index(self.level):
            return f"{field}: from unfreeze.level={self.level} there are fewer levels to go. Leave some out."
        if self.milestones != sorted(set(self.milestones)) or self.milestones[-1] >= recipe.epochs:
            return f"{field}: give epochs in rising order, all below epochs={recipe.epochs}."
        return None


def set_level(model: nn.Module, level: str) -> UnfreezeStep:
    """Make the parameters of a level trainable, and no others."""
    trained = find_trained(model, level)
    for parameter in model.parameters():
        parameter.requires_grad_(parameter in trained)
    return trained, find_frozen(model)


def find_trained(model: nn.Module, level: str) -> set[nn.Parameter]:
    """Return the parameters that train at a level."""
    from training.model.stages import head_of, stages_of

    if level == "full":
        return set(model.parameters())
    stages = [] if level == "last" else stages_of(model)
    return {*head_of(model).parameters(), *(p for stage in stages[len(stages) // 2 :] for p in stage)}


def find_frozen(model: nn.Module) -> list[nn.Module]:
    """Return the modules in which nothing trains. They should be in eval mode, dropout and BatchNorm included.

    A module without parameters, such as a dropout, is frozen if the module after it is.
    """
    frozen, next_is_frozen = [], False
    for module in reversed(list(model.modules())):  # from the last module to the first
        if own := list(module.parameters(recurse=False)):
            next_is_frozen = not any(p.requires_grad for p in own)
        parameters = list(module.parameters())
        if not any(p.requires_grad for p in parameters) if parameters else next_is_frozen:
            frozen.append(module)
    return frozen
