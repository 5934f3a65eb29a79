"""Delete checkpoints: an ended trial loses those that only a resume needs, and only the best trials keep their weights."""

from __future__ import annotations

from ledger.events import AnyEvent, TrialEnded
from ledger.folder import SweepFolder
from ledger.trials import Trial, Trials
from search.copies.ledger_copy import LedgerCopy
from search.copies.place import CopyPlace

GONE = ("stopped", "diverged", "out_of_memory", "failed")


class Checkpoints:
    """Deletes checkpoints that are no longer needed, after each event of the ledger."""

    def __init__(self, folder: SweepFolder, trials: Trials, keep_best: int, copy: LedgerCopy | None = None) -> None:
        self.folder = folder
        self.trials = trials
        self.keep_best = keep_best
        self.copy = copy

    def __call__(self, event: AnyEvent) -> None:
        if not isinstance(event, TrialEnded):
            return
        if event.state in GONE:
            self._delete(event.trial, "last.ckpt", "best.ckpt")
        elif event.state == "completed":
            self._delete(event.trial, "last.ckpt")
            for trial in self._rank()[self.keep_best :]:
                self._delete(trial.number, "best.ckpt")

    def _rank(self) -> list[Trial]:
        return [trial for trial in self.trials.ranked() if trial.state == "completed"]

    def _delete(self, number: int, *names: str) -> None:
        for name in names:
            (self.folder.trial(number) / name).unlink(missing_ok=True)
            if self.copy is not None:
                self.copy.delete(number, name)

    def fetch(self, place: CopyPlace) -> None:
        """Get the weights that are kept, of trials that ran on machines with another storage.

        Raises:
            OSError: the store does not answer, or this machine cannot write the file.
        """
        for trial in self._rank()[: self.keep_best]:
            path = self.folder.trial(trial.number) / "best.ckpt"
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                place.child(f"trials/{trial.name}").read(path.name, path)
