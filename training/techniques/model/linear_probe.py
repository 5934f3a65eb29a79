"""Linear probe: the head starts at the logistic regression on the frozen features (Kumar et al. 2022, section 3.3)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from training.contract.part import Examples
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique
from training.contract.view import RecipeView


class LinearProbe(Technique):
    interactions: ClassVar[str] = (
        "With a random head, the first steps of a fine-tuning distort pretrained features. From the probe's head they do not, "
        "and fewer epochs are enough. With few images BatchNorm undoes that unless unfreeze.freeze_batch_norm=true, because "
        "the statistics of a batch are not those of the pretraining. It needs pretrained weights. With trains=false and "
        "unfreeze.level=last the recipe is the "
        "plain linear probe: nothing trains. With trains=false and another level, the backbone trains below a fixed head. The "
        "features are those of the images as in an evaluation, so augmentation and mixing act on the epochs after it. With "
        "loss.name=logit_adjusted the head starts without the frequencies of the classes."
    )
    examples: ClassVar[Examples] = (
        {"linear_probe": {"c": 0.01}, "backbone": {"name": "test_resnet", "weights": "letters"}},
        {"linear_probe": {"c": "auto"}, "backbone": {"name": "test_resnet", "weights": "letters"}},
        {"linear_probe": {"c": 0.01, "trains": False}, "backbone": {"name": "test_resnet", "weights": "letters"}},
    )

    c: Annotated[float, Field(gt=0, le=1e6)] | Literal["off", "auto"] = Field(
        "off",
        description="Inverse strength of the L2 penalty on features of unit scale, scikit-learn's C; auto: the best of six in "
        "a cross-validation on the training images. off: the head starts at random numbers.",
    )
    trains: bool = Field(True, description="Whether the head trains after it.")

    def apply(self, setup: TrainingSetup) -> None:
        from training.model.stages import head_of

        if self.c != "off":
            setup.head_start = self.c
        if not self.trains:
            setup.scale_rates(dict.fromkeys(head_of(setup.model).parameters(), 0.0))

    def conflict(self, recipe: RecipeView) -> str | None:
        if self.c == "off":
            return None if self.trains else "linear_probe.trains=false keeps a random head: set linear_probe.c=auto."
        c = f"linear_probe.c={self.c}"
        if recipe.backbone.weights == "none":
            return f"{c} needs features, and backbone.weights=none has none: use pretrained weights, or c=off."
        # In the order in which a space draws the fields, because it calls this before all of them are drawn.
        if recipe.data_parallel.strategy == "fsdp":
            return f"{c} does not fit data_parallel.strategy=fsdp, which divides the head: use ddp."
        if recipe.attention_pooling.is_on:
            return f"{c} does not fit attention_pooling, whose head is not linear: leave one out."
        if recipe.optimizer.lr in ("auto", "auto/3", "auto*3"):
            return f"{c} with optimizer.lr={recipe.optimizer.lr}, found with a random head: give lr as a number."
        if not self.trains and recipe.optimizer.name == "prodigy":
            return "optimizer.name=prodigy has one rate for all parameters: linear_probe.trains=false does not fit."
        if not self.trains and recipe.classifier_retraining.is_on:
            return "classifier_retraining trains a new head, and linear_probe.trains=false trains none: leave one out."
        return None
