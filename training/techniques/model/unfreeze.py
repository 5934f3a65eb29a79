"""Unfreeze level: which stages of a pretrained backbone train (Yosinski et al. 2014, section 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from training.contract.part import MOST, Examples
from training.contract.setup import TrainingSetup, UnfreezeStep
from training.contract.technique import Technique
from training.contract.view import RecipeView
from training.errors import UserError

if TYPE_CHECKING:
    from torch import nn


# Each level, and those that its milestones lead to.
UPWARD = {
    "last": ("last", "most", "full"),
    "most": ("most", "full"),
    "first": ("first", "full"),
    "middle": ("middle", "full"),
    "norm_bias": ("norm_bias", "full"),
    "full": ("full",),
}


MilestoneLr = Literal["keep", "keep/3", "keep/10", "keep/30", "keep/100", "auto", "auto/3", "auto*3"]


class Unfreeze(Technique):
    interactions: ClassVar[str] = (
        "It has little use without pretrained weights. last is ahead after few epochs and seldom at the end, so early stopping "
        "favours it unless trials are compared within their level. The fewer parameters train, the higher the learning rate "
        "can be, and the less regularisation is needed. With milestones, level is the one at the start. to_full trains the "
        "head first, so that its random start does not distort pretrained features (Kumar et al. 2022); the whole model takes "
        "a much lower rate than the head alone: set milestone_lr. The schedule ignores "
        "milestones; choose its restarts so that they coincide. norm_bias saves optimizer memory and disk space, not time; it "
        "takes a higher rate than full (Zaken et al. 2022), and lora fits it. first is for images whose pixels differ from "
        "those of the pretraining, as with noise or another camera, and middle for new kinds of the same objects (Lee et al. "
        "2023); gradients still pass through the frozen stages above. adapt_statistics is for images that look unlike "
        "those of the pretraining; with few images in a batch it adds noise. freeze_batch_norm is for few images in a batch. "
        "It needs pretrained weights, without which BatchNorm then normalises nothing, and a lower rate or clipping."
    )
    examples: ClassVar[Examples] = (
        {"unfreeze": {"level": "last"}},
        {"unfreeze": {"level": "most"}},
        {"unfreeze": {"level": "first"}},
        {"unfreeze": {"level": "middle"}},
        {"unfreeze": {"level": "norm_bias"}},
        {"unfreeze": {"level": "last", "adapt_statistics": True}},
        {"unfreeze": {"level": "last", "milestones": [1]}},
        {
            "unfreeze": {"freeze_batch_norm": True},
            "backbone": {"name": "test_resnet", "weights": "letters"},
            "optimizer": {"name": "momentum", "lr": 0.01},
        },
    )

    level: Literal["last", "most", "first", "middle", "norm_bias", "full"] = Field(
        "full",
        description="last: the head trains; most: the later half of the stages too; first: the head, the stem and the first "
        "third of the stages; middle: the head and the middle third; norm_bias: the head and everything of one dimension, "
        "such as biases and the scales of norms; full: everything.",
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
    adapt_statistics: bool = Field(
        False,
        description="BatchNorm in frozen stages measures the new images; its scales and biases stay frozen.",
        examples=[True],
    )
    freeze_batch_norm: bool = Field(
        False,
        description="BatchNorm keeps its pretrained statistics, scales and biases also where the rest trains (He et al. "
        "2016, appendix A).",
        examples=[True],
    )
    milestone_lr: Annotated[float, Field(gt=0)] | MilestoneLr = Field(
        "keep",
        description="Base rate from each milestone on: keep it or a share of it, a number in place of optimizer.lr, or find it "
        "again like optimizer.lr=auto; where the loss falls at no rate, that gives at most a hundredth.",
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
        return UPWARD[self.level][: len(self.milestones) + 1]

    def apply(self, setup: TrainingSetup) -> None:
        from training.callbacks.unfreezing import UnfreezeAtMilestones
        from training.model.batch_statistics import has_batch_norm
        from training.model.levels import find_frozen

        if self.freeze_batch_norm and not has_batch_norm(setup.model):
            raise UserError(
                f"unfreeze.freeze_batch_norm=true: {type(setup.model).__name__} has no BatchNorm. Set it to false."
            )
        # In reverse order, so that the model ends at the first level.
        steps = [self.set_level(setup.model, level) for level in reversed(self.levels)][::-1]
        if self.adapt_statistics and steps[0][1] == find_frozen(setup.model):
            raise UserError(
                f"unfreeze.adapt_statistics=true: the frozen part of {type(setup.model).__name__} has no BatchNorm. Set it to "
                "false."
            )
        setup.frozen.extend(steps[0][1])
        if self.milestones:
            setup.unfreeze_steps.update(zip(self.milestones, steps[1:], strict=True))
            setup.callbacks.append(UnfreezeAtMilestones(setup.frozen, setup.unfreeze_steps))

    def set_level(self, model: nn.Module, level: str) -> UnfreezeStep:
        """Make the parameters of a level trainable, and no others."""
        from torch.nn.modules.batchnorm import _BatchNorm

        from training.model.levels import set_level

        trained, frozen = set_level(model, level, self.adapt_statistics)
        if self.freeze_batch_norm:
            norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
            for parameter in {parameter for norm in norms for parameter in norm.parameters()}:
                parameter.requires_grad_(False)
                trained.discard(parameter)
            frozen.extend(norm for norm in norms if norm not in frozen)
        return trained, frozen

    @property
    def breaks_features(self) -> str:
        return "adapt_statistics changes the frozen part" if self.adapt_statistics else ""

    def conflict(self, recipe: RecipeView) -> str | None:
        if self.to_full and (self.level != "last" or len(self.milestones) != 1):
            return (
                f"unfreeze.to_full=true does not fit unfreeze.level={self.level} with milestones={self.milestones}: it needs "
                "level=last and one milestone. Or leave to_full out."
            )
        if self.adapt_statistics and self.level in ("norm_bias", "full"):
            return (
                f"unfreeze.adapt_statistics=true does nothing with unfreeze.level={self.level}, because no BatchNorm is "
                "frozen: set unfreeze.level=last or most, or leave it out."
            )
        if self.freeze_batch_norm and (other := self._find_other_norm()):
            return f"unfreeze.freeze_batch_norm=true does not fit {other}: leave one out."
        if not self.milestones:
            if self.milestone_lr == "keep":
                return None
            return f"unfreeze.milestone_lr={self.milestone_lr} does nothing without unfreeze.milestones: set them."
        field = f"unfreeze.milestones={self.milestones}"
        if len(self.milestones) >= len(UPWARD[self.level]):
            return f"{field}: from unfreeze.level={self.level} there are fewer levels to go. Leave some out."
        if self.milestones != sorted(set(self.milestones)) or self.milestones[-1] >= recipe.epochs:
            return f"{field}: give epochs in rising order, all below epochs={recipe.epochs}."
        return None

    def _find_other_norm(self) -> str | None:
        if self.adapt_statistics:
            return "unfreeze.adapt_statistics=true, which measures its statistics"
        if self.level == "norm_bias":
            return "unfreeze.level=norm_bias, which trains its scales"
        return "unfreeze.level=last, which freezes it too" if self.deepest == "last" else None
