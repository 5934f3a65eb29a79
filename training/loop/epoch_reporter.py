"""At the end of each epoch, save the best and the last weights, then report."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import lightning.pytorch as pl
import torch

from training.distributed.progress import OTHER_SECONDS, allowing
from training.distributed.rank import Rank
from training.errors import UserError
from training.loop.checkpoint import Saved, leave_out, read_checkpoint, write_checkpoint
from training.loop.classifier import Classifier
from training.loop.epoch_report import Answers, Kept, Report, describe_epoch
from training.loop.stopwatch import Stopwatch
from training.process.resources import PeakMemory
from training.recipe import RECORDED, Recipe, read_recipe
from training.score_metrics import PEAKS, is_better

Step = tuple[int, float, float]  # optimizer step, learning rate, training loss

logger = logging.getLogger(__name__)

TOLERATED = 0.01  # a larger share of missing weights is reported


class EpochReporter(pl.Callback):
    """Saves the best and the last weights, then reports. Runs after every other callback.

    The reports are stored in `last.ckpt`, so a resumed training has all of them, including any that was never delivered.
    """

    def __init__(
        self,
        folder: Path,
        recipe: Recipe,
        classes: tuple[str, ...],
        metric: str,
        on_report: Callable[[Report], bool],
        score: Kept,
        rank: Rank,
    ) -> None:
        self.folder, self.metric, self.score, self.on_report = folder, metric, score, on_report
        self.rank = rank  # all ranks make the same report; the first delivers it and gets the decision to continue
        self.asked = self.recipe = recipe  # `asked` keeps `auto`, in `recipe` it is replaced
        self.classes = list(classes)
        self.reports: list[Report] = []
        self.answers: Answers = ((), "")  # of the kept weights
        self.stopped = False
        self.stopwatch = Stopwatch()

    def resume(self) -> Path | None:
        """Report the epochs in `last.ckpt`, and return its path; None if there is nothing to resume from."""
        path = self.folder / "last.ckpt"
        if path.exists() and (saved := self._read(path)):
            self._refuse_another(saved, path)
            self.load_state_dict(saved)
        if self.rank.leads:
            self._recover_best()
        self.stopped = not all(self.on_report(report) for report in self.reports)
        return path if self.reports else None

    def _read(self, path: Path) -> Saved | None:
        """Return our part of a checkpoint; None if it is damaged, because the same epochs can be trained again."""
        try:
            return read_checkpoint(path, ["callbacks"], mmap=True)["callbacks"].get(self.state_key)
        except UserError as error:
            logger.warning("%s The training starts again.", error)
            return None

    def _refuse_another(self, saved: Saved, path: Path) -> None:
        asked = Recipe.model_validate(saved["asked"], context=RECORDED)
        before = {**asked.flat(), "metric": saved["metric"], "score": saved.get("score", "best")}
        now = {**self.asked.flat(), "metric": self.metric, "score": self.score}
        if changed := [name for name in {**before, **now} if before.get(name) != now.get(name)]:
            name = changed[0]
            raise UserError(
                f"{path}: holds a training with {name}={before.get(name)}, not {now.get(name)}. Name another folder, or "
                "remove the file to start again."
            )

    @property
    def described(self) -> dict[str, object]:
        """What is saved together with the weights."""
        return {"recipe": self.recipe.model_dump(), "classes": self.classes}

    def state_dict(self) -> dict[str, object]:
        return {
            "reports": [asdict(report) for report in self.reports],
            "seconds": self.stopwatch.seconds,
            "asked": self.asked.model_dump(),
            "described": self.described,
            "metric": self.metric,
            "score": self.score,
            "answers": self.answers,
        }

    def load_state_dict(self, state: Saved) -> None:
        self.reports = [Report(**report) for report in state["reports"]]
        self.answers = state.get("answers", ((), ""))
        # Checkpoints written before the other parts were measured have train_seconds alone.
        self.stopwatch.seconds |= state["seconds"] if "seconds" in state else {"train": state["train_seconds"]}
        self.recipe = read_recipe(state["described"]["recipe"])
        if set(classes := state["described"]["classes"]) == set(self.classes):
            self.classes = classes  # in the order of the model's outputs, which version 0.1.0 sorted as text

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.memory = PeakMemory(pl_module.device.type)
        self.seconds_before = self.stopwatch.seconds["train"]
        self.stopwatch.start("train")

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if pl_module.device.type == "cuda":
            torch.cuda.synchronize()
        self.train_memory = self.memory.read_mb()
        self.memory = PeakMemory(pl_module.device.type)
        self.stopwatch.start("evaluation")

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, Classifier)
        collected = pl_module.collect(self.metric)
        self.stopwatch.start("checkpoint")
        report = self._make_report(trainer.current_epoch + 1, pl_module, *collected)
        self.reports.append(report)
        if self.rank.leads:
            logger.info(describe_epoch(report, self.recipe.epochs))
        with allowing(OTHER_SECONDS if self.rank.leads else None):
            self._save(trainer, pl_module)
            goes_on = self.on_report(report)
        if not self.rank.gather(goes_on)[0]:
            self.stopped = trainer.should_stop = True

    def _save(self, trainer: pl.Trainer, classifier: Classifier) -> None:
        last = self.reports[-1]
        is_best = last.best_epoch == last.epoch
        if is_best:
            weights = {"state_dict": classifier.plain_weights(), "epoch": last.epoch, **self.described}
            leave_out(weights, dict(classifier.given.values()))
            if self.rank.leads:
                write_checkpoint(weights, self.folder / "best.partial")
                (self.folder / "best.partial").replace(self.folder / "best.next")
        trainer.save_checkpoint(self.folder / "last.partial")  # all ranks call this and wait for each other in it
        if self.rank.leads:
            (self.folder / "last.partial").replace(self.folder / "last.ckpt")  # from this moment the epoch is complete
            if is_best:
                (self.folder / "best.next").replace(self.folder / "best.ckpt")
        self.stopwatch.stop()

    def _recover_best(self) -> None:
        """After an interruption, rename `best.next` to `best.ckpt`, or remove it if its epoch is not in `last.ckpt`."""
        new = self.folder / "best.next"
        if not new.exists():
            return
        if self.reports and read_checkpoint(new, ["epoch"], mmap=True)["epoch"] == self.reports[-1].best_epoch:
            new.replace(self.folder / "best.ckpt")
        else:
            new.unlink()

    def _make_report(
        self, epoch: int, classifier: Classifier, metrics: dict[str, float], error: float, steps: list[Step]
    ) -> Report:
        seconds = self.stopwatch.seconds
        metrics["images_per_second"] = sum(classifier.plan.batch_sizes) / (seconds["train"] - self.seconds_before)
        metrics |= {f"{part}_seconds": value for part, value in seconds.items()}
        peaks = zip(*self.rank.gather((self.train_memory, self.memory.read_mb())), strict=True)
        for name, rank_peaks in zip(PEAKS, peaks, strict=True):
            # Each GPU has its own memory; ranks on CPUs share one.
            if known := [peak for peak in rank_peaks if peak is not None]:
                metrics[name] = max(known) if self.memory.device == "cuda" else sum(known)
        if classifier.plan.missing_weights > TOLERATED:
            metrics["missing_weights"] = classifier.plan.missing_weights
        kept = metrics[self.metric], error, epoch
        last = self.reports[-1] if self.reports else None
        if last and self.score == "best" and not is_better(self.metric, kept[0], last.score):
            kept = last.score, last.standard_error, last.best_epoch
        else:
            self.answers = classifier.answers
        is_last = epoch == self.recipe.epochs
        return Report(epoch, metrics, *kept, steps, time.time(), *(self.answers if is_last else ()))
