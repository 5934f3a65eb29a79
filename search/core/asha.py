"""ASHA: at each rung the best 1/η of the trials that reached it continue (Li et al. 2018); a pure function of events."""

import enum
import math
from bisect import bisect_right, insort
from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import pairwise

from search.core.early_scores import Evidence
from spaces.search import AshaScheduler

NEXT = 0.87  # correlation between adjacent rungs that is expected before trials show it
END = 0.9  # correlation between the last rung and the end, likewise
WEIGHT_NEXT = 6  # number of trials that the expected correlation counts for
WEIGHT_END = 3  # the same; a small number, because a rule that stops the winners must change soon
LOWEST = 0.05  # a lower correlation counts as this one
EARLY = 1.75  # mean of Fisher's z between adjacent rungs (a correlation of .94) above which trials stop earlier
EARLIEST = 2.25  # the same (.98) for the largest change
SCOUTS = 4  # the first trials of a sweep are compared only at rungs, so that some show what early scores predict
COMPARED_UNTIL = 0.5  # share of its own length until which a trial is compared again after each epoch
_ROUNDING = 1e-9  # a product of shares may miss a whole number by less


class Decision(enum.StrEnum):
    CONTINUE = "continue"
    STOP = "stop"


@dataclass
class _Trial:
    """The state of one trial after the events so far."""

    length: int
    group: Hashable
    protected: bool
    rungs: dict[int, list[int]]  # epoch -> the rungs at this epoch, for the trial's own length
    is_scout: bool
    original: int  # the first trial with this recipe and seed; usually this one
    epoch: int = 0
    decision: Decision = Decision.CONTINUE
    is_stopped: bool = False
    scores: dict[int, float] = field(default_factory=dict)  # rung -> score of the trial there
    counted: set[int] = field(default_factory=set)  # the rungs at which its score counts, because no copy came before

    @property
    def last_rungs(self) -> list[int]:
        """The last rung at each epoch that has rungs."""
        return [together[-1] for together in self.rungs.values()]


class Asha:
    """Decides only from starts, reports and ends, so replaying a ledger gives the same decisions.

    `rungs="shares"` puts rungs at `last_share` of each trial's own length, 1/η of that, and so on down to `first_share`.
    There are no later rungs, because they give too little new information. `"epochs"` puts them at r, rη, rη², ... epochs.
    A trial passes if it is among the best 1/η of all trials or of its `group`, so that groups that learn late are not
    compared with groups that learn early. Two rungs at the same epoch count as one where 1/η² pass. The last rung is left
    out if it is only one epoch after another: one more epoch is too little new information for another cut.
    With `adapt`, the share that passes depends on the correlations that the trials show: where each rung predicts the
    next one, fewer trials pass and they stop earlier; where the last rung does not predict the final score, more pass.
    Except for the first trials of a sweep, one that passed a rung is compared again after each epoch of its first half,
    because others have arrived since.
    """

    def __init__(self, rule: AshaScheduler | None = None) -> None:
        rule = rule or AshaScheduler()
        self.min_epochs = rule.min_epochs
        self.reduction_factor = rule.reduction_factor
        self._evidence = Evidence() if rule.adapt else None
        steps = int(math.log(rule.last_share / rule.first_share, rule.reduction_factor) + 1e-9)
        shares = [rule.last_share / rule.reduction_factor**k for k in range(steps, -1, -1)]
        self._shares = shares if rule.rungs == "shares" else None
        self._trials: dict[int, _Trial] = {}
        self._scores: dict[int, list[float]] = {}  # of each rung, sorted
        self._group_scores: dict[tuple[int, Hashable], list[float]] = {}  # the same of each group at each rung
        self._stopped: dict[int, int] = {}  # number of trials that do not go on from each rung
        self._seen: set[tuple[int, ...]] = set()  # rungs, and pairs of them, to which each original or a copy has come

    def start(
        self, trial: int, length: int, group: Hashable = None, protected: bool = False, original: int | None = None
    ) -> None:
        """Record that a trial starts. If it starts again after a resume, its rungs, scores and decision are kept.

        `original` is an earlier trial with the same recipe and seed, as two machines may add at one time: its scores are
        the same, so each counts only once.
        """
        if trial in self._trials:
            return
        is_scout = len(self._trials) < SCOUTS
        first = trial if original is None else original
        self._trials[trial] = _Trial(length, group, protected, self._place_rungs(length), is_scout, first)

    def report(self, trial: int, epoch: int, score: float) -> Decision:
        """Record the best score so far after `epoch` epochs; higher is better. A repeated epoch changes nothing."""
        this = self._trials[trial]
        if epoch <= this.epoch or this.decision is not Decision.CONTINUE:
            return this.decision
        this.epoch = epoch
        here = this.rungs.get(epoch, [])
        if self._evidence and this.scores and (here or epoch == this.length):
            before, later = max(this.scores), here[-1] if here else None
            if self._is_first(this, before, -1 if later is None else later):
                self._evidence.add(before, later, this.scores[before], score)
        for rung in here:
            this.scores[rung] = score
            if not self._is_first(this, rung):
                continue
            this.counted.add(rung)
            insort(self._scores.setdefault(rung, []), score)
            insort(self._group_scores.setdefault((rung, this.group), []), score)
        if not this.protected and self._is_compared(this) and not self._passes(this):
            this.decision = Decision.STOP
        return this.decision

    def _is_first(self, this: _Trial, *rungs: int) -> bool:
        """Return whether no trial with the same recipe and seed has come to these rungs before."""
        seen = (this.original, *rungs)
        is_first = seen not in self._seen
        self._seen.add(seen)
        return is_first

    def end(self, trial: int, state: str) -> None:
        """Record that a trial ended."""
        this = self._trials[trial]
        if state == "stopped" and this.scores and not this.is_stopped:
            this.is_stopped = True
            rung = max(this.scores)
            self._stopped[rung] = self._stopped.get(rung, 0) + (rung in this.counted)

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

    def _is_compared(self, this: _Trial) -> bool:
        """Return whether a trial is compared now: at its rungs and, with `adapt`, after each epoch of its first half.

        The first trials at a rung pass it, because there are hardly any others; later some of them would not pass.
        """
        if this.epoch in this.rungs:
            return True
        if self._evidence is None or this.is_scout or not this.scores:
            return False
        return this.epoch <= COMPARED_UNTIL * this.length

    def _passes(self, this: _Trial) -> bool:
        """Return whether a trial passes the highest rung that it reached, among all trials or among its group."""
        rung = max(this.scores)
        share = self._share(this, rung)
        groups = [self._scores[rung]]
        if this.group is not None:
            groups.append(self._group_scores[rung, this.group])
        for scores in groups:
            better = len(scores) - bisect_right(scores, this.scores[rung])
            if better < _count_places(len(scores), share):
                return True
        return False

    def _share(self, this: _Trial, rung: int) -> float:
        """Return the share of the trials at a rung that passes, for a trial of this length."""
        position = this.last_rungs.index(rung)
        shares = self._shares_of_all(this)
        return shares[position] / (shares[position - 1] if position else 1.0)

    def _shares_of_all(self, this: _Trial) -> list[float]:
        """Return, for each epoch with rungs, the share of all trials that passes there.

        Without evidence, one in `reduction_factor` passes each rung. If the score at the last rung predicts the final
        score less well than expected, the share that passes it grows in proportion to √(1 − ρ²) / ρ, where ρ is their
        correlation. If each rung repeats the one before, the share falls, and most trials stop at the first rung.
        """
        factors = [int(self.reduction_factor ** min(2, len(together))) for together in this.rungs.values()]
        plain = [1 / math.prod(factors[: position + 1]) for position in range(len(factors))]
        if self._evidence is None:
            return plain
        hidden = max(0, len(self._shares or []) - 1 - this.rungs[max(this.rungs)][0])
        expected = END * NEXT**hidden  # the last rung of a short trial is an early one
        passed = math.prod(self._passed_at(rung) for rung in this.last_rungs)
        correlation = self._evidence.correlate(this.last_rungs[-1], None, passed, expected, WEIGHT_END)
        leniency = max(1.0, _unexplained(correlation) / _unexplained(expected))
        redundancy = self._measure_redundancy(this, self._evidence)
        last = min(1.0, plain[-1] ** (1 + redundancy / 2) * leniency)
        return [last ** (math.log(share, plain[-1]) ** (1 - redundancy)) for share in plain]

    def _measure_redundancy(self, this: _Trial, evidence: Evidence) -> float:
        """Return from 0 to 1 how nearly each rung repeats the one before, so that it gives no new information."""
        correlations = [
            evidence.correlate(rung, following, self._passed_at(rung), NEXT, WEIGHT_NEXT)
            for rung, following in pairwise(this.last_rungs)
        ]
        if not correlations:
            return 0.0
        mean = sum(map(math.atanh, correlations)) / len(correlations)
        return min(1.0, max(0.0, (mean - EARLY) / (EARLIEST - EARLY)))

    def _passed_at(self, rung: int) -> float:
        """Return the share of the trials at a rung that went on; one more counts as gone on."""
        arrived = len(self._scores.get(rung, []))
        return (arrived - self._stopped.get(rung, 0) + 1) / (arrived + 1)


def _count_places(arrived: int, share: float) -> int:
    return math.ceil(arrived * share - _ROUNDING)


def _unexplained(correlation: float) -> float:
    """Return √(1 − ρ²) / ρ: the spread of final scores that a score at a rung does not explain, relative to the rest."""
    known = max(LOWEST, correlation)
    return math.sqrt(1 - known**2) / known
