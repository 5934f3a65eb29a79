"""ASHA: at each rung only the best 1/η of the trials that reached it go on (Li et al. 2018, algorithm 2), as a pure function of events."""

import enum
import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Literal


class Decision(enum.StrEnum):
    CONTINUE = "continue"
    STOP = "stop"
    PAUSE = "pause"


@dataclass
class _Trial:
    """What the events so far say about one trial."""

    length: int
    group: Hashable
    protected: bool
    rungs: list[int]  # the epoch of each rung, by the trial's own length; 0 where it has none
    epoch: int = 0
    decision: Decision = Decision.CONTINUE
    ended: bool = False
    scores: dict[int, float] = field(default_factory=dict)  # rung -> score it had there


class Asha:
    """Decides from starts, reports and ends alone, so replaying a ledger gives the same decisions.

    `rungs="shares"` puts rungs at 1/η, 1/η², ... of each trial's own length, `"epochs"` at r, rη, rη², ... epochs.
    `kind="stop"` stops a trial that is below the best 1/η when it arrives; `"promote"` pauses it, and
    `promotable` names the paused trial to resume next.
    """

    def __init__(
        self,
        *,
        min_epochs: int = 1,
        reduction_factor: int = 3,
        rungs: Literal["shares", "epochs"] = "shares",
        count: int = 3,
        kind: Literal["stop", "promote"] = "stop",
        within_groups: bool = False,
    ) -> None:
        self.min_epochs = min_epochs
        self.reduction_factor = reduction_factor
        self.spacing = rungs
        self.count = count
        self.kind = kind
        self.within_groups = within_groups
        self._trials: dict[int, _Trial] = {}

    def start(self, trial: int, length: int, group: Hashable = None, protected: bool = False) -> None:
        """A trial starts, or starts again after a pause or a resume; its rungs and scores stay what they were."""
        known = self._trials.get(trial)
        if known is None:
            self._trials[trial] = _Trial(length, group, protected, self._place_rungs(length))
        else:
            known.decision = Decision.CONTINUE

    def report(self, trial: int, epoch: int, score: float) -> Decision:
        """The best score so far, higher is better, after `epoch` epochs. An epoch seen before changes nothing."""
        this = self._trials[trial]
        if math.isnan(score):
            this.decision = Decision.STOP  # diverged: it enters no rung, and being protected does not save it
            return this.decision
        if epoch <= this.epoch or this.decision is not Decision.CONTINUE:
            return this.decision
        this.epoch = epoch
        if epoch in this.rungs and epoch < this.length:
            rung = this.rungs.index(epoch)
            this.scores[rung] = score
            if not this.protected and not self._is_kept(this, rung):
                this.decision = Decision.STOP if self.kind == "stop" else Decision.PAUSE
        return this.decision

    def end(self, trial: int, state: str) -> None:
        """A trial ended; an interrupted one may start again."""
        self._trials[trial].ended = state != "interrupted"

    def promotable(self) -> int | None:
        """The paused trial to resume: the best at the highest rung where one is among the best 1/η."""
        paused = [
            (max(t.scores), t, n) for n, t in self._trials.items() if t.decision is Decision.PAUSE and not t.ended
        ]
        kept = [(rung, t.scores[rung], -n) for rung, t, n in paused if self._is_kept(t, rung)]
        return -max(kept)[2] if kept else None

    def rungs(self) -> list[tuple[str, int, float | None]]:
        """Per rung: where it stands, how many trials reached it, the score needed to pass it now."""
        lines = []
        for rung in range(self.count):
            scores = [t.scores[rung] for t in self._trials.values() if rung in t.scores]
            lines.append((self._label(rung), len(scores), self._cutoff(scores) if scores else None))
        return lines

    def _place_rungs(self, length: int) -> list[int]:
        if self.spacing == "epochs":
            return [self.min_epochs * self.reduction_factor**k for k in range(self.count)]
        shares = [self.reduction_factor ** -(self.count - k) for k in range(self.count)]
        return [max(self.min_epochs, round(share * length)) for share in shares]

    def _label(self, rung: int) -> str:
        if self.spacing == "epochs":
            return f"{self.min_epochs * self.reduction_factor**rung} epochs"
        return f"1/{self.reduction_factor ** (self.count - rung)}"

    def _is_kept(self, this: _Trial, rung: int) -> bool:
        rivals = [
            t.scores[rung]
            for t in self._trials.values()
            if rung in t.scores and (not self.within_groups or t.group == this.group)
        ]
        return this.scores[rung] >= self._cutoff(rivals)

    def _cutoff(self, scores: list[float]) -> float:
        """The ceil(n/η)-th best of n scores; a promotion needs floor(n/η), so that first arrivals wait for rivals."""
        if self.kind == "stop":
            return sorted(scores, reverse=True)[math.ceil(len(scores) / self.reduction_factor) - 1]
        places = len(scores) // self.reduction_factor
        return sorted(scores, reverse=True)[places - 1] if places else math.inf
