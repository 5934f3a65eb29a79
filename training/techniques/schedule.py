"""Learning-rate schedules, stepped once per optimizer step, after a linear warm-up (Loshchilov & Hutter 2017)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from training.techniques.base import Part

if TYPE_CHECKING:
    import torch

    from training.recipe import Recipe

START_FACTOR = 1e-4


class _Schedule(Part):
    warmup_epochs: float = Field(0.0, ge=0, description="Length of the linear warm-up; 0 starts at the full rate.")
    start_factor: float = Field(START_FACTOR, gt=0, le=1, description="Where the warm-up starts, times lr.")

    def build(
        self, optimizer: torch.optim.Optimizer, epochs: int, steps_per_epoch: int
    ) -> torch.optim.lr_scheduler.LRScheduler:
        """Build the schedule over `epochs * steps_per_epoch` optimizer steps."""
        from torch.optim.lr_scheduler import LinearLR, SequentialLR

        total = epochs * steps_per_epoch
        warmup = min(round(self.warmup_epochs * steps_per_epoch), total - 1)
        if warmup < 1:
            return self.after_warmup(optimizer, total)
        rise = LinearLR(optimizer, start_factor=self.start_factor, total_iters=warmup)
        return SequentialLR(optimizer, [rise, self.after_warmup(optimizer, total - warmup)], milestones=[warmup])

    def after_warmup(self, optimizer: torch.optim.Optimizer, steps: int) -> torch.optim.lr_scheduler.LRScheduler:
        raise NotImplementedError

    def conflict(self, recipe: Recipe) -> str | None:
        if self.warmup_epochs >= recipe.epochs:
            return (
                f"schedule.warmup_epochs={self.warmup_epochs:g} leaves nothing of epochs={recipe.epochs} to train at "
                "the full rate: shorten the warm-up."
            )
        if self.warmup_epochs == 0 and self.start_factor != START_FACTOR:
            return "schedule.start_factor does nothing while schedule.warmup_epochs is 0: set warmup_epochs."
        return None


class Constant(_Schedule):
    name: Literal["constant"] = "constant"

    def after_warmup(self, optimizer, steps):
        from torch.optim.lr_scheduler import ConstantLR

        return ConstantLR(optimizer, factor=1.0)


class Cosine(_Schedule):
    name: Literal["cosine"] = "cosine"

    def after_warmup(self, optimizer, steps):
        from torch.optim.lr_scheduler import CosineAnnealingLR

        return CosineAnnealingLR(optimizer, T_max=steps)


class CosineRestarts(_Schedule):
    name: Literal["cosine_restarts"] = "cosine_restarts"
    cycles: int = Field(2, ge=2, description="Descents to zero; one alone is the plain cosine.")
    cycle_factor: int = Field(1, ge=1, description="Length of each cycle relative to the one before.")

    def after_warmup(self, optimizer, steps):
        from torch.optim.lr_scheduler import CosineAnnealingLR, SequentialLR

        # CosineAnnealingWarmRestarts takes whole cycle lengths, which seldom add up to the training's length: the last
        # would end in the middle. Chained descents with rounded ends always finish at a minimum.
        ends = self.cycle_ends(steps)
        starts = [0, *ends[:-1]]
        descents = [CosineAnnealingLR(optimizer, T_max=end - start) for start, end in zip(starts, ends, strict=True)]
        return SequentialLR(optimizer, descents, milestones=ends[:-1])

    def cycle_ends(self, steps: int) -> list[int]:
        """The optimizer step at which each cycle ends; the last is `steps`."""
        shares = [self.cycle_factor**i for i in range(self.cycles)]
        ends = [round(steps * sum(shares[: i + 1]) / sum(shares)) for i in range(self.cycles)]
        if len({0, *ends}) <= self.cycles:
            from training.errors import UserError

            raise UserError(
                f"schedule.cycles={self.cycles} with cycle_factor={self.cycle_factor} does not fit into {steps} optimizer "
                "steps: lower one of them or train longer."
            )
        return ends


Schedule = Annotated[Constant | Cosine | CosineRestarts, Field(discriminator="name")]
