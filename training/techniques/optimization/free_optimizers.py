"""Optimizers of pytorch-optimizer: one without a schedule, one without a learning rate, and one of second order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from training.contract.optimizer import Beta1, Beta2, Lr, LrDecay, Optimizer
from training.contract.part import MOST
from training.contract.view import RecipeView
from training.process.optional import require

if TYPE_CHECKING:
    import torch
    from lightning.pytorch import Callback
    from torch.optim.optimizer import ParamsT


class ScheduleFree(Optimizer):
    """AdamW on an average of its own steps, which replaces the schedule (Defazio et al. 2024, equations 3 to 5)."""

    interactions: ClassVar[str] = (
        "schedule_free takes the place of a schedule that ends at a known epoch, so it suits early comparisons: the score of "
        "every epoch is that of the average, which is also kept and exported. It needs schedule.name=constant, mostly with "
        "warm-up, and no averaging. Its lr is about three times that of adamw. BatchNorm's statistics are measured anew for "
        "the average before each validation: a forward pass over the training images, which counts as training time."
    )

    name: Literal["schedule_free"] = "schedule_free"
    lr: Lr = 0.003
    beta1: Annotated[
        float,
        Field(
            gt=0,
            lt=1,
            description="Share of the average in the point where the gradient is taken; the rest is plain AdamW.",
            examples=[0.5],
        ),
    ] = 0.9
    beta2: Beta2 = 0.999
    weight_decay: LrDecay = 0.0

    def build(self, parameters: ParamsT) -> torch.optim.Optimizer:
        require("optimizer.name=schedule_free", "pytorch_optimizer", otherwise="Or use optimizer.name=adamw.")
        from pytorch_optimizer import ScheduleFreeAdamW

        return ScheduleFreeAdamW(parameters, **self.arguments())

    def callbacks(self) -> list[Callback]:
        from training.callbacks.weight_average import OwnAverage

        return [OwnAverage()]

    def conflict(self, recipe: RecipeView) -> str | None:
        if recipe.schedule.name != "constant":
            return "optimizer.name=schedule_free takes the place of a schedule: set schedule.name=constant."
        if recipe.averaging.is_on:
            return "optimizer.name=schedule_free averages the weights itself: set averaging.name=none."
        return None


class Prodigy(Optimizer):
    """Adam whose rate follows from the distance to the start, which it estimates (Mishchenko & Defazio 2024, algorithm 4)."""

    interactions: ClassVar[str] = (
        "prodigy finds the rate itself, so lr is a factor on it that the schedule changes: leave it at 1, and take a cosine. "
        "All parameters have the same rate, so layer_decay, head_lr and lora.b_rate are refused. Its first steps are tiny, "
        "and it needs some tens of them to find the rate. It stores four tensors for each weight, adamw two, and reads "
        "numbers from the device in each step, which makes a GPU wait."
    )

    name: Literal["prodigy"] = "prodigy"
    lr: Lr = 1.0
    beta1: Beta1 = 0.9
    beta2: Beta2 = 0.999
    weight_decay: LrDecay = 0.0
    d_coef: float = Field(
        1.0, gt=0, le=1000, description="Factor on the estimate of the distance, and so on the rate.", examples=[3.0]
    )

    def build(self, parameters: ParamsT) -> torch.optim.Optimizer:
        require("optimizer.name=prodigy", "pytorch_optimizer", otherwise="Or use optimizer.name=adamw.")
        from pytorch_optimizer import Prodigy

        # Otherwise a warm-up would make it overestimate the distance.
        return Prodigy(parameters, safeguard_warmup=True, **self.arguments())

    def conflict(self, recipe: RecipeView) -> str | None:
        if isinstance(self.lr, str):
            return f"optimizer.name=prodigy finds the rate itself, so optimizer.lr={self.lr} cannot: set lr=1.0."
        # In the order in which a space draws the fields, because it calls this before all of them are drawn.
        if (again := recipe.unfreeze.milestone_lr) != "keep":
            return (
                f"optimizer.name=prodigy finds the rate itself: unfreeze.milestone_lr={again} does not fit, set keep."
            )
        if recipe.lora.b_rate != 1:
            return _describe_shares("lora.b_rate")
        if recipe.layer_decay.is_on:
            return _describe_shares("layer_decay.factor")
        return _describe_shares("head_lr.factor") if recipe.head_lr.is_on else None


class Soap(Optimizer):
    """AdamW in the eigenbases of each matrix's mean gradient products (Vyas et al. 2025, algorithm 3)."""

    interactions: ClassVar[str] = (
        "soap is adamw where rows and columns of a weight are rotated so that their gradients are less correlated. It takes "
        "rates like those of adamw. Each side of a weight, up to 10,000, has two square matrices, which are multiplied in each "
        "step and decomposed every refresh_steps, so it needs much memory and time in wide models. Its first step only "
        "measures the bases. Vectors take plain steps of adamw."
    )

    name: Literal["soap"] = "soap"
    lr: Lr = 0.003
    beta1: Beta1 = 0.95
    beta2: Beta2 = 0.95
    weight_decay: LrDecay = 0.0
    refresh_steps: int = Field(10, ge=1, le=MOST, description="Steps after which the bases follow.", examples=[2])

    def build(self, parameters: ParamsT) -> torch.optim.Optimizer:
        require("optimizer.name=soap", "pytorch_optimizer", otherwise="Or use optimizer.name=adamw.")
        from pytorch_optimizer import SOAP

        arguments = self.arguments()
        return SOAP(parameters, precondition_frequency=arguments.pop("refresh_steps"), **arguments)


def _describe_shares(field: str) -> str:
    return f"optimizer.name=prodigy has one rate for all parameters, so {field} would do nothing: set it to 1.0."
