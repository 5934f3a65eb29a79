"""The LightningModule of a recipe's set-up: training and validation steps, metrics, optimizer and schedule."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import nn

from training.contract.optimizer import Optimizer
from training.contract.setup import FindPoint, Pull, TrainingSetup
from training.distributed.sharding import divide_like, gather_whole
from training.errors import Diverged
from training.features.split import Features, Split
from training.loop.checkpoint import Given, Saved, leave_out, put_back
from training.loop.epoch_report import Answers
from training.loop.metrics import PLAIN, judge, measure
from training.loop.recorded_passes import Compute, RecordedPasses
from training.model.batch_statistics import on_copies_of_statistics
from training.model.ensemble import join_logits, join_weights
from training.model.stages import head_of
from training.recipe import Recipe
from training.techniques.data.mixing import change_batch
from training.techniques.loss.losses import criterion_of
from training.techniques.optimization.accumulation import weigh_batches


class SecondPass:
    """Moves the weights before the second pass, and back after its backward pass."""

    def __init__(self, model: nn.Module, find_point: FindPoint) -> None:
        self.model, self.find_point = model, find_point
        self.before: list[tuple[nn.Parameter, torch.Tensor]] = []

    def compute(self, first: torch.Tensor, compute_loss: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Return the loss at the point that follows from the gradient of the first loss."""
        named = {name: weight for name, weight in self.model.named_parameters() if weight.requires_grad}
        weights = list(named.values())
        # Not backward, which would add to the gradients that earlier batches of an optimizer step have left.
        gradients = torch.autograd.grad(first, weights, materialize_grads=True, allow_unused=True)
        with torch.no_grad():
            moves = self.find_point(list(named), [weight.detach() for weight in weights], list(gradients))
            self.before = [(weight, weight.detach().clone()) for weight in weights]
            for weight, move in zip(weights, moves, strict=True):
                weight.add_(move)
        torch.clear_autocast_cache()  # it has the 16-bit copies of the weights before the move
        with on_copies_of_statistics(self.model):
            return compute_loss()

    @torch.no_grad()
    def restore(self) -> None:
        """Give the weights their values from before, bit by bit."""
        for weight, value in self.before:
            weight.copy_(value)
        self.before = []


STEP_POINTS = 200  # largest number of recorded steps with their learning rate and training loss
MOST_ANSWERS = 50_000  # probabilities of a validation that are kept: of 5,000 images in 10 classes

Batch = tuple[torch.Tensor | Features, torch.Tensor]  # images (N, 3, side, side), labels (N,)


class Classifier(pl.LightningModule):
    """Trains `plan.model`. Sums stay on the device and are read at the end of an epoch only.

    Calling Lightning's `self.log` in every step would double or triple the cost of a small step.
    """

    def __init__(self, recipe: Recipe, plan: TrainingSetup, given: Given | None = None) -> None:
        super().__init__()
        self.model = plan.model
        self.recipe = recipe
        self.plan = plan  # not named setup, because Lightning has a hook of that name
        self.given = given or {}
        self.criterion = criterion_of(plan)
        self.epoch_steps = [-(-len(plan.batch_sizes) // self.batches_in(epoch)) for epoch in range(recipe.epochs)]
        self.step_stride = -(-sum(self.epoch_steps) // STEP_POINTS)
        self.second_pass = SecondPass(self.model, plan.find_worst_point) if plan.find_worst_point else None
        self.split: Split | None = None  # set while batches hold features in place of images
        self.passes: RecordedPasses | None = None  # set where they can be recorded
        self.feature_passes = self.image_passes = 0  # in this epoch
        self.train()  # Lightning keeps the modes from the start of a fit

    def __setattr__(self, name: str, value: Any) -> None:
        # Lightning sets it fifty times in each step, and torch looks each time whether it is a weight.
        if name == "_current_fx_name":
            self.__dict__[name] = value
        else:
            super().__setattr__(name, value)

    def train(self, mode: bool = True) -> Classifier:
        super().train(mode)
        # Also stops BatchNorm statistics, which would otherwise drift in a frozen layer.
        for module in self.plan.frozen:
            module.eval()
        return self

    def plain_weights(self) -> dict[str, torch.Tensor]:
        """Return weights for the unchanged backbone of the library, with adapters merged and wrappers removed.

        Those of an ensemble are named as in `Ensemble`. All ranks must call this.
        """
        if self.plan.members is None:
            return self._read_weights()
        visits = self.plan.members.visit()
        return join_weights([{name: value.clone() for name, value in self._read_weights().items()} for _ in visits])

    def _read_weights(self) -> dict[str, torch.Tensor]:
        weights = (self.plan.plain_weights or nn.Module.state_dict)(self.model)
        return {name: gather_whole(value) for name, value in weights.items()}

    def on_save_checkpoint(self, checkpoint: Saved) -> None:
        given = {name: self.given[weight][1] for name, weight in self.named_parameters() if weight in self.given}
        leave_out(checkpoint, given)

    def on_load_checkpoint(self, checkpoint: Saved) -> None:
        put_back(checkpoint, self.state_dict())

    def configure_model(self) -> None:
        """Do nothing: the set-up has divided the model among the ranks if necessary. Lightning requires this hook."""

    def batches_in(self, epoch: int) -> int:
        """Return the forward passes per optimizer step after this many completed epochs."""
        return self.plan.batches_per_step(epoch) if self.plan.batches_per_step else 1

    def forward(self, images: torch.Tensor | Features) -> torch.Tensor:
        if isinstance(images, Features):
            assert self.split is not None
            self.feature_passes += len(images.values)
            return self._compute(self.split.compute_logits, images.values)
        self.image_passes += len(images)
        return self._compute(self.model, images)

    def _compute(self, compute: Compute, inputs: torch.Tensor) -> torch.Tensor:
        if self.passes is None or not self.training:
            return compute(inputs)
        return self.passes.compute(self.model, compute, inputs)

    def on_train_start(self) -> None:
        if self.plan.lesson:
            self.plan.lesson.teacher.to(self.device, next(self.model.parameters()).dtype)
        # Only now the weights have their final device and type, and are divided among the ranks.
        pulls = self.plan.pulls or {}
        for parameter, pull in pulls.items():
            if pull.towards is not None:
                pulls[parameter] = Pull(pull.strength, divide_like(pull.towards.to(parameter.dtype), parameter))

    def on_train_epoch_start(self) -> None:
        # Lightning's GradientAccumulationScheduler does only this; the weights of the last group are added here.
        self.batches_per_step = self.trainer.accumulate_grad_batches = self.batches_in(self.current_epoch)
        self.loss_weights = weigh_batches(self.plan.batch_sizes, self.batches_per_step, self.plan.rank)
        self.loss_sum: torch.Tensor | float = 0.0
        self.image_count = self.feature_passes = self.image_passes = 0
        self.steps: list[tuple[int, float, torch.Tensor]] = []
        self.validated: list[tuple[torch.Tensor, ...]] = []
        self.kept: list[torch.Tensor] | None = []  # logits of the validation, unless these are too many
        self.correct: torch.Tensor | float = 0.0

    def training_step(self, batch: Batch, batch_index: int) -> torch.Tensor:
        images, targets = batch
        if isinstance(images, torch.Tensor):
            images, targets = change_batch(self.plan, images, targets)
        lesson = self.plan.lesson
        teacher_logits = lesson.teacher.predict(images) if lesson and isinstance(images, torch.Tensor) else None
        logits = self(images)
        loss = self.loss_of(logits, targets, teacher_logits)
        # A mixed image counts as one of the class with the larger share.
        classes = targets if targets.dim() == 1 else targets.argmax(1)
        self.correct = self.correct + (logits.detach().argmax(1) == classes).sum()
        self._record(loss.detach(), len(targets), batch_index)
        if self.second_pass:
            loss = self.second_pass.compute(loss, lambda: self.loss_of(self(images), targets, teacher_logits))
        return loss * self.loss_weights[batch_index]

    def loss_of(self, logits: torch.Tensor, targets: torch.Tensor, teacher_logits: torch.Tensor | None) -> torch.Tensor:
        loss = self.criterion(logits, targets)
        if teacher_logits is not None and self.plan.lesson is not None:
            loss = self.plan.lesson.join(loss, logits, teacher_logits)
        return loss

    def on_after_backward(self) -> None:
        if self.second_pass:
            self.second_pass.restore()

    @torch.no_grad()
    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        # The gradients are complete: accumulated, averaged over the ranks and unscaled. Clipping follows.
        for parameter, pull in (self.plan.pulls or {}).items():
            if parameter.grad is not None:
                distance = parameter if pull.towards is None else parameter - pull.towards
                parameter.grad.add_(distance, alpha=pull.strength)

    def _record(self, loss: torch.Tensor, size: int, batch_index: int) -> None:
        self.loss_sum = self.loss_sum + loss * size
        self.image_count += size
        if batch_index % self.batches_per_step == 0 and self.global_step % self.step_stride == 0:
            share = size / self.plan.batch_sizes[batch_index]  # this rank's share of the batch
            self.steps.append((self.global_step + 1, self._lr(), loss * share))

    def validation_step(self, batch: Batch, batch_index: int) -> None:
        images, labels = batch
        members = self.plan.members
        logits = join_logits([self(images) for _ in members.visit()]) if members else self(images)
        self.validated.append(judge(logits, labels))
        if self.kept is not None:
            self.kept = [*self.kept, logits] if len(self.validated) * logits.numel() <= MOST_ANSWERS else None

    def collect(self, score: str) -> tuple[dict[str, float], float, list[tuple[int, float, float]]]:
        """Collect the results of an epoch from all ranks.

        `train_accuracy` is that of the training batches, augmented and mixed, each before its optimizer step.
        `cached_feature_fraction` is the share of the images, in training and validation, that started at stored features.

        Returns:
            The metrics, the standard error of the metric `score`, and points of (optimizer step, lr, training loss).

        Raises:
            Diverged: the training or the validation loss is infinite or NaN.
        """
        rank = self.plan.rank
        local = [torch.cat(column).cpu() for column in zip(*self.validated, strict=True)]
        labels, predicted, confidence, losses = map(rank.join, zip(*rank.gather(local), strict=True))
        numbers = [self.loss_sum, self.image_count, self.correct, *(p[2] for p in self.steps)]
        loss_sum, count, correct, *step_losses = map(sum, zip(*rank.gather([*map(float, numbers)]), strict=True))
        train_loss = loss_sum / count
        if not (math.isfinite(train_loss) and losses[:, PLAIN].isfinite().all()):
            raise Diverged("the loss became infinite or NaN")
        metrics, error = measure((labels, predicted, confidence, losses), self.plan.class_count, score)
        kept = rank.gather(torch.empty(0) if self.kept is None else torch.cat(self.kept).float().softmax(1).cpu())
        said = (255 * rank.join(kept)).round().byte() if all(map(len, kept)) else torch.empty(0)
        self.answers: Answers = (tuple(labels.tolist()) if len(said) else (), bytes(said.flatten().tolist()).hex())
        metrics |= {
            "train_loss": train_loss,
            "train_accuracy": correct / count,
            "lr": self._lr(),
            "cached_feature_fraction": self.feature_passes / (self.feature_passes + self.image_passes),
        }
        return metrics, error, [(*point[:2], loss) for point, loss in zip(self.steps, step_losses, strict=True)]

    def _lr(self) -> float:
        """Return the base rate; some groups of parameters have a share of it."""
        return max(group["lr"] for group in self.trainer.optimizers[0].param_groups)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        lr = self.recipe.optimizer.lr
        assert isinstance(lr, float)  # resolved
        groups = group_parameters(self.plan, self.recipe.optimizer, lr * (self.plan.lr_factor or 1.0))
        optimizer = self.recipe.optimizer.build(groups)
        schedule = self.recipe.schedule.build(optimizer, self.epoch_steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def group_parameters(setup: TrainingSetup, optimizer: Optimizer, lr: float) -> list[dict[str, object]]:
    """Group every parameter that trains, now or after a milestone; `lr` is the base rate, which the head gets.

    Optimizers skip a frozen parameter, because it has no gradient. So no group has to be added at a milestone, the
    optimizer's state is kept, and a checkpoint has the same structure before and after.
    """
    shares, undecayed, zero = setup.lr_shares or {}, setup.undecayed or set(), setup.zero_matrices or set()
    head = set(head_of(setup.model).parameters())
    groups: dict[tuple[tuple[str, object], ...], list[nn.Parameter]] = {}
    for parameter in setup.trained_parameters():
        options: dict[str, object] = {"lr": lr * shares.get(parameter, 1.0)}
        if parameter in undecayed:
            options["weight_decay"] = 0.0
        options |= optimizer.options_for(parameter, starts_at_zero=parameter in zero, is_in_head=parameter in head)
        groups.setdefault(tuple(options.items()), []).append(parameter)
    return [{"params": parameters, **dict(options)} for options, parameters in groups.items()]
