"""L2-SP: pull the backbone towards the weights that training starts from, not towards zero (Li et al. 2018, equation 3)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from training.contract.part import Examples
from training.contract.setup import Pull, TrainingSetup
from training.contract.technique import Technique
from training.contract.view import RecipeView


class L2Sp(Technique):
    interactions: ClassVar[str] = (
        "It takes the place of the optimizer's weight_decay, which pulls the same weights towards zero: with both, the two "
        "balance at alpha / (alpha + weight_decay) times the weights at the start, so search it with a small one or none. The "
        "pull is added to the gradient once for each optimizer step, so it is part of what gradient_clipping bounds and "
        "adaptive optimizers scale, and train_loss does not include it. It needs pretrained weights, and keeps one copy of "
        "those that train in memory."
    )
    needs_trained_backbone: ClassVar[str] = "alpha"
    examples: ClassVar[Examples] = (
        {"l2_sp": {"alpha": 0.01, "beta": 0.01}, "backbone": {"name": "test_resnet", "weights": "letters"}},
    )

    alpha: float = Field(0.0, ge=0, description="Strength of the pull of the backbone to its weights at the start.")
    beta: float = Field(0.0, ge=0, description="Strength of the pull of the head, which is new, towards zero.")

    def apply(self, setup: TrainingSetup) -> None:
        from training.model.stages import head_of

        head = set(head_of(setup.model).parameters())
        setup.pulls = {}
        for parameter in setup.trained_parameters():
            if parameter in head and self.beta:
                setup.pulls[parameter] = Pull(self.beta, None)
            elif parameter not in head and self.alpha:
                # A resumed training builds the same model again, so these weights need no place in the checkpoint.
                setup.pulls[parameter] = Pull(self.alpha, parameter.detach().clone())

    def conflict(self, recipe: RecipeView) -> str | None:
        field = f"l2_sp.alpha={self.alpha:g}"
        if not self.alpha:
            return None
        if recipe.backbone.weights == "none":
            return f"{field} pulls towards pretrained weights, which backbone.weights=none has not: give weights, or alpha=0.0."
        if (rank := recipe.lora.rank) > 0:
            return f"{field} does not fit lora.rank={rank}, which freezes the weights: leave one out."
        return None
