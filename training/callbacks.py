"""What happens around a fit: seeds by epoch, the stop on a loss that is no number, reports and checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning.pytorch as pl
import torch

from training.errors import Diverged
from training.isolation import derive_seed, seed_process
from training.memory import PeakMemory
from training.ranking import is_better
from training.report import Report

if TYPE_CHECKING:
    from training.classifier import Classifier


class EpochSeeds(pl.Callback):
    """Each epoch's randomness follows from seed and epoch alone, so resuming needs no saved random states."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_epoch_start(self, trainer: pl.Trainer, module: Classifier) -> None:
        seed_process(derive_seed(self.seed, trainer.current_epoch))
        module.begin_epoch()


class NaNStop(pl.Callback):
    """End the training at the first loss that is not finite, without waiting for the device in each step."""

    def __init__(self) -> None:
        self.pending: torch.Tensor | None = None

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
        loss = outputs["loss"].detach()
        if loss.device.type == "cpu":
            self._judge(loss)
            return
        # A copy into pinned memory that is read a step later: late by a step or so, but never a synchronisation.
        if self.pending is not None:
            self._judge(self.pending)
        else:
            self.pending = torch.zeros((), dtype=loss.dtype, pin_memory=True)
        self.pending.copy_(loss, non_blocking=True)

    @staticmethod
    def _judge(loss: torch.Tensor) -> None:
        if not torch.isfinite(loss):
            raise Diverged("the training loss became infinite or NaN")


class EpochReporter(pl.Callback):
    """Keep the best and the last weights on disk, then report. Runs after every other callback.

    The reports travel in `last.ckpt`: whoever resumes knows all that was measured, even what nobody heard of.
    """

    def __init__(
        self, folder: Path, metric: str, on_report: Callable[[Report], bool], described: dict[str, Any]
    ) -> None:
        self.folder = folder
        self.metric = metric
        self.on_report = on_report
        self.described = described  # goes into best.ckpt beside the weights
        self.reports: list[Report] = []
        self.stopped = False
        self.train_seconds = 0.0

    def resume(self) -> Path | None:
        """Report the epochs already in `last.ckpt`; None where there is none to go on from."""
        path = self.folder / "last.ckpt"
        if not path.exists():
            return None
        saved = torch.load(path, map_location="cpu", weights_only=True)
        self.load_state_dict(saved["callbacks"][self.state_key])
        for report in self.reports:
            if not self.on_report(report):
                self.stopped = True
                break
        return path

    def state_dict(self) -> dict[str, Any]:
        return {"reports": [asdict(report) for report in self.reports], "train_seconds": self.train_seconds}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.reports = [Report(**report) for report in state["reports"]]
        self.train_seconds = state["train_seconds"]

    def on_train_epoch_start(self, trainer: pl.Trainer, module: Classifier) -> None:
        self.memory = PeakMemory(module.device.type)
        self.started = time.perf_counter()

    def on_validation_start(self, trainer: pl.Trainer, module: Classifier) -> None:
        if module.device.type == "cuda":
            torch.cuda.synchronize()
        self.epoch_seconds = time.perf_counter() - self.started

    def on_train_epoch_end(self, trainer: pl.Trainer, module: Classifier) -> None:
        report = self._make_report(trainer.current_epoch + 1, module)
        self.reports.append(report)
        if report.best_epoch == report.epoch:
            best_now = {"state_dict": module.model.state_dict(), "epoch": report.epoch, **self.described}
            _write(best_now, self.folder / "best.ckpt")
        trainer.save_checkpoint(self.folder / "last.partial")
        (self.folder / "last.partial").replace(self.folder / "last.ckpt")
        if not self.on_report(report):
            self.stopped = trainer.should_stop = True

    def _make_report(self, epoch: int, module: Classifier) -> Report:
        metrics, error, steps = module.collect(self.metric)
        self.train_seconds += self.epoch_seconds
        metrics["images_per_second"] = module.image_count / self.epoch_seconds
        metrics["train_seconds"] = self.train_seconds
        if (peak := self.memory.read_mb()) is not None:
            metrics["peak_memory_mb"] = peak
        if not torch.isfinite(torch.tensor([metrics["train_loss"], metrics["val_loss"]])).all():
            raise Diverged("the loss became infinite or NaN")
        value = metrics[self.metric]
        best = self.reports[-1] if self.reports else None
        if best and not is_better(self.metric, value, best.score):
            return Report(epoch, metrics, best.score, best.standard_error, best.best_epoch, steps, time.time())
        return Report(epoch, metrics, value, error, epoch, steps, time.time())


def _write(state: dict[str, Any], path: Path) -> None:
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    partial.replace(path)
