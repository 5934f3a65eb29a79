"""Delete checkpoints: an ended trial loses those that only a resume needs, and only the best trials keep their weights."""

from __future__ import annotations

from collections.abc import Callable

from ledger.events import AnyEvent, TrialEnded
from ledger.folder import SweepFolder
from ledger.trials import Trials
from search.copies.place import CopyPlace

GONE = ("stopped", "diverged", "out_of_memory", "failed")


class Checkpoints:
    """Deletes checkpoints that are no longer needed, after each event of the ledger."""

    def __init__(
        self,
        folder: SweepFolder,
        trials: Trials,
        keep_best: int,
        delete_copy: Callable[[int, str], None] = lambda trial, name: None,
    ) -> None:
        self.folder = folder
        self.trials = trials
        self.keep_best = keep_best
        self.delete_copy = delete_copy

    def __call__(self, event: AnyEvent) -> None:
        if not isinstance(event, TrialEnded):
            return
        if event.state in GONE:
            self._delete(event.trial, "last.ckpt", "best.ckpt")
        elif event.state == "completed":
            self._delete(event.trial, "last.ckpt")
            completed = [trial for trial in self.trials.ranked() if trial.state == "completed"]
            for trial in completed[self.keep_best :]:
                self._delete(trial.number, "best.ckpt")

    def _delete(self, number: int, *names: str) -> None:
        for name in names:
            (self.folder.trial(number) / name).unlink(missing_ok=True)
            self.delete_copy(number, name)

    def fetch(self, place: CopyPlace) -> None:
        """Get the weights that are kept, of trials that ran on machines with another storage.

        Raises:
            OSError: the store does not answer, or this machine cannot write the file.
        """
        completed = [trial for trial in self.trials.ranked() if trial.state == "completed"]
        for trial in completed[: self.keep_best]:
            path = self.folder.trial(trial.number) / "best.ckpt"
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                place.child(f"trials/{trial.name}").read(path.name, path)
