"""ASHA: at each rung the best 1/η of the trials that reached it continue (Li et al. 2018); a pure function of events."""

import enum
import math
from bisect import bisect_right, insort
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from spaces.space import Space


class Decision(enum.StrEnum):
    CONTINUE = "continue"
    STOP = "stop"
    PAUSE = "pause"


@dataclass
class _Trial:
    """The state of one trial after the events so far."""

    length: int
    group: Hashable
    protected: bool
    rungs: dict[int, list[int]]  # epoch -> the rungs at this epoch, for the trial's own length
    epoch: int = 0
    decision: Decision = Decision.CONTINUE
    ended: bool = False
    scores: dict[int, float] = field(default_factory=dict)  # rung -> score of the trial there


class Asha:
    """Decides only from starts, reports and ends, so replaying a ledger gives the same decisions.

    `rungs="shares"` puts rungs at `last_share` of each trial's own length, 1/η of that, and so on down to `first_share`.
    There are no later rungs, because they give too little new information. `"epochs"` puts them at r, rη, rη², ... epochs.
    A trial passes if it is among the best 1/η of all trials or of its `group`, so that groups that learn late are not
    compared with groups that learn early. Two rungs at the same epoch count as one where 1/η² pass. The last rung is left
    out if it is only one epoch after another: one more epoch is too little new information for another cut.
    `kind="stop"` stops a trial that does not pass when it arrives; `"promote"` pauses it until it passes.
    """

    def __init__(
        self,
        *,
        min_epochs: int = 1,
        reduction_factor: int = 2,
        rungs: Literal["shares", "epochs"] = "shares",
        first_share: float = 1 / 32,
        last_share: float = 1 / 4,
        kind: Literal["stop", "promote"] = "stop",
    ) -> None:
        self.min_epochs = min_epochs
        self.reduction_factor = reduction_factor
        self.kind = kind
        steps = int(math.log(last_share / first_share, reduction_factor) + 1e-9)
        shares = [last_share / reduction_factor**k for k in range(steps, -1, -1)]
        self._shares = shares if rungs == "shares" else None
        self._trials: dict[int, _Trial] = {}
        self._scores: dict[int, list[float]] = {}  # of each rung, sorted
        self._group_scores: dict[tuple[int, Hashable], list[float]] = {}  # the same of each group at each rung
        self._factors: dict[int, int] = {}  # of each rung, the smallest over the trials: one in so many passes

    def start(self, trial: int, length: int, group: Hashable = None, protected: bool = False) -> None:
        """Record that a trial starts, or starts again after a pause or a resume; its rungs and scores are kept."""
        known = self._trials.get(trial)
        if known is None:
            self._trials[trial] = _Trial(length, group, protected, self._place_rungs(length))
            for rungs in self._trials[trial].rungs.values():
                self._factors[rungs[-1]] = min(self._factor(rungs), self._factors.get(rungs[-1], self._factor(rungs)))
        elif known.decision is Decision.PAUSE:
            known.decision = Decision.CONTINUE

    def report(self, trial: int, epoch: int, score: float) -> Decision:
        """Record the best score so far after `epoch` epochs; higher is better. A repeated epoch changes nothing."""
        this = self._trials[trial]
        if epoch <= this.epoch or this.decision is not Decision.CONTINUE:
            return this.decision
        this.epoch = epoch
        if math.isnan(score):
            this.decision = Decision.STOP  # diverged: it enters no rung, and is stopped even if it is protected
            return this.decision
        self.arrive(trial, epoch, score)
        if epoch in this.rungs and not this.protected and not self._passes(this):
            this.decision = Decision.STOP if self.kind == "stop" else Decision.PAUSE
        return this.decision

    def arrive(self, trial: int, epoch: int, score: float) -> None:
        """Record the score of a trial at its rungs without a decision, for those who only look at the rungs."""
        this = self._trials[trial]
        for rung in this.rungs.get(epoch, []):
            this.scores[rung] = score
            insort(self._scores.setdefault(rung, []), score)
            insort(self._group_scores.setdefault((rung, this.group), []), score)

    def end(self, trial: int, state: str) -> None:
        """Record that a trial ended; an interrupted or paused one may start again."""
        self._trials[trial].ended = state not in ("interrupted", "paused")

    def promotable(self) -> int | None:
        """Return the paused trial to resume next: the best at the highest rung among those that pass now."""
        paused = {n: t for n, t in self._trials.items() if t.decision is Decision.PAUSE and not t.ended}
        able = [(max(t.scores), t.scores[max(t.scores)], -n) for n, t in paused.items() if self._passes(t)]
        return -max(able)[2] if able else None

    def rungs(self) -> list[tuple[str, int, float | None]]:
        """Return for each rung its position, the number of trials that reached it, and the score that passes.

        If rungs are at the same epoch, only the highest decides. If that is so only in short trials, the score is that
        of the long trials.
        """
        lines = []
        for rung, factor in sorted(self._factors.items()):
            scores = self._scores.get(rung, [])
            places = max(1, self._count_places(len(scores), factor))
            lines.append((self._label(rung), len(scores), scores[-places] if scores else None))
        return lines

    def rung_epochs(self, length: int) -> list[int]:
        """Return the epochs after which a trial of `length` epochs is compared with the others."""
        return list(self._place_rungs(length))

    def _place_rungs(self, length: int) -> dict[int, list[int]]:
        if self._shares is None:
            count = int(math.log(max(1, length / self.min_epochs), self.reduction_factor) + 1e-9) + 1
            epochs = [self.min_epochs * self.reduction_factor**k for k in range(count)]
        else:
            epochs = [max(self.min_epochs, round(share * length)) for share in self._shares]
        placed: dict[int, list[int]] = {}
        for rung, epoch in enumerate(epochs):
            if epoch < length:
                placed.setdefault(epoch, []).append(rung)
        *_, before, last = 0, 0, *placed
        if self._shares and before and last - before < 2:
            del placed[last]
        return placed

    def _label(self, rung: int) -> str:
        if self._shares is None:
            return f"epoch {self.min_epochs * self.reduction_factor**rung}"
        return f"{self._shares[rung]:.1%} of its epochs"

    def _passes(self, this: _Trial) -> bool:
        """Return whether a trial passes the highest rung that it reached, among all trials or among its group."""
        rung = max(this.scores)
        together = next(rungs for rungs in this.rungs.values() if rung in rungs)
        groups = [self._scores[rung]]
        if this.group is not None:
            groups.append(self._group_scores[rung, this.group])
        for scores in groups:
            better = len(scores) - bisect_right(scores, this.scores[rung])
            if better < self._count_places(len(scores), self._factor(together)):
                return True
        return False

    def _factor(self, together: list[int]) -> int:
        """Return n if one in n trials passes when these rungs are at the same epoch."""
        return int(self.reduction_factor ** min(2, len(together)))

    def _count_places(self, arrived: int, factor: int) -> int:
        """Return how many of `arrived` trials pass. A promotion rounds down, because a paused trial can wait for others."""
        return arrived // factor if self.kind == "promote" else math.ceil(arrived / factor)


def make_asha(space: "Space") -> Asha | None:
    """Return the scheduler that a space names; None if it names none."""
    scheduler = space.search.scheduler
    return Asha(**scheduler.model_dump(exclude={"name", "group"})) if scheduler.name == "asha" else None
