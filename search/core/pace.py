"""How long a recipe would train on these machines, and the time that a sweep still needs, by the trials so far."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from ledger.formatting import format_seconds
from ledger.trials import UNFINISHED, Trial, Trials
from training.recipe import Recipe

# Seconds of an epoch beside one of the whole network, as a frozen part has no gradient (docs/benchmarks.md, "Minutes").
SHARES = {"full": 1.0, "first": 1.0, "norm_bias": 0.9, "middle": 0.75, "most": 0.55, "last": 0.25}
STORED = 0.05  # with `last`, where the features of images that never change are stored

END_CLOSE_SECONDS = 6.0  # from the end of the search to the first last training
END_START_SECONDS = 12.0  # of each at most, beside its training
MORE_IMAGES = 1.3  # the time with the images of training and validation, beside that with those of the training
GRACE = 0.05  # of the time budget, that the first of them may take more than is left of it
MOST_KEPT = 0.45  # of the time budget, for the last trainings
MEMBERS = 3  # of them: a fourth gains little (docs/benchmarks.md), so it trains only in time that is left over


@dataclass(frozen=True)
class LastPlan:
    """Last trainings in a time: how many at a time, how many in all, the seconds of each and of all."""

    lanes: int
    members: int
    each: float
    seconds: float


def plan_last(trials: Trials, usual: float, seconds: float, most: int, slots: int, shares_cpus: bool) -> LastPlan:
    """Return the plan by which most of at most `most` trainings end in the seconds, and of those the soonest.

    `usual` has the seconds of a trial, of which `slots` ran at a time. With `shares_cpus` fewer at a time have more CPUs
    each: with two, a training takes 0.7 of the time that it takes with one, so the square root is assumed. A start
    takes what the slowest of the `trials` took beside its training.
    """
    whole = (trial for trial in trials if trial.state == "completed" and not trial.resumes)
    beside = (trial.ended - trial.started - usual_seconds(trial) for trial in whole if trial.ended)
    start = min(END_START_SECONDS, max(beside, default=END_START_SECONDS))

    def plan(lanes: int) -> LastPlan:
        each = start + MORE_IMAGES * usual * (math.sqrt(lanes / slots) if shares_cpus else 1.0)
        members = max(1, min(most, lanes * int(seconds // each)))
        return LastPlan(lanes, members, each, each * math.ceil(members / lanes))

    return max(map(plan, range(1, max(1, min(slots, most)) + 1)), key=lambda one: (one.members, -one.seconds))


def keep_for_end(trials: Trials, budget: float, left: float, slots: int, shares_cpus: bool) -> float:
    """Return the seconds of a time budget for as many last trainings, of the best fine-tuning, as are likely to end in them."""
    ended = (trial for trial in trials.ranked() if trial.state == "completed")
    leader, most = next((trial for trial in ended if trial.recipe.linear_probe.trains), None), MOST_KEPT * budget
    usual = usual_seconds(leader)
    one, plan = (plan_last(trials, usual, most, count, slots, shares_cpus) for count in (1, MEMBERS))
    ends = END_CLOSE_SECONDS + one.each <= left + GRACE * budget  # else trials get what is left
    return min(most, END_CLOSE_SECONDS + plan.seconds) if ends else END_CLOSE_SECONDS


def usual_seconds(trial: Trial | None) -> float:
    """Return the seconds of a trial's training, by all of its workers; one where nothing is known."""
    seconds = [report.worker_seconds or 0.0 for report in (trial.reports if trial else ())]
    return sum(now for now, after in pairwise([*seconds, 0.0]) if after <= now) or 1.0


def weigh(recipe: Recipe) -> float:
    """Return the cost of an epoch beside that of another recipe: by what trains, and by the pixels of an image."""
    share = STORED if _trains_on_stored(recipe) else SHARES[recipe.unfreeze.deepest]
    side = recipe.preprocessing.image_size
    return share * (side**2 if isinstance(side, int) else 1.0)


def _trains_on_stored(recipe: Recipe) -> bool:
    is_varied = recipe.flip.probability or recipe.random_crop.name != "none" or recipe.augmentation.policy != "none"
    return recipe.unfreeze.deepest == "last" and not is_varied


@dataclass(frozen=True)
class _Measured:
    """The seconds of one trial, after a number of reports, until its first epoch and for each of them."""

    reports: int
    cost: float
    is_stored: bool
    start: float  # infinite without a report
    epoch: float  # 0 without two; of a training of one epoch with its start


class Pace:
    """Predicts how long a recipe would train, by the trials so far; each is measured anew after its reports alone."""

    def __init__(self, trials: Iterable[Trial]) -> None:
        self._trials = trials
        self._measured: dict[int, _Measured] = {}

    def predict(self, recipe: Recipe) -> float | None:
        """Return the seconds of a whole training; None while no trial has two reports, or all that it would have.

        An epoch takes the median of the trials whose epochs cost the same. Without one, each other trial predicts it in
        proportion, and the shortest counts: a recipe is refused only if all say so. Trials on stored features say little
        about those on images, so they predict these only if there are no others. A start counts as the shortest one,
        because the first trials compute what later ones find stored.
        """
        known = [self._measure(trial) for trial in self._trials]
        timed = [each for each in known if each.epoch]
        on_images = [each for each in timed if not each.is_stored]
        timed = timed if _trains_on_stored(recipe) or not on_images else on_images
        if not timed:
            return None
        own = weigh(recipe)
        like = [each.epoch for each in timed if math.isclose(each.cost, own, rel_tol=0.01)]
        epoch = statistics.median(like) if like else min(each.epoch * own / each.cost for each in timed)
        return min(each.start for each in known) + recipe.epochs * epoch

    def _measure(self, trial: Trial) -> _Measured:
        measured = self._measured.get(trial.number)
        if measured is None or measured.reports != len(trial.reports):
            seconds = [report.worker_seconds for report in trial.reports if report.worker_seconds is not None]
            # Where the next one has fewer seconds, another worker began.
            steps = [after - before for before, after in pairwise(seconds) if after > before]
            is_whole = bool(seconds) and trial.recipe.epochs == 1 and trial.recipe.linear_probe.trains
            epoch = statistics.median(steps) if steps else seconds[0] if is_whole else 0.0
            start = max(0.0, seconds[0] - epoch) if seconds else math.inf
            costs = weigh(trial.recipe), _trains_on_stored(trial.recipe)
            self._measured[trial.number] = measured = _Measured(len(trial.reports), *costs, start, epoch)
        return measured


def describe_left(trials: Sequence[Trial], budget: int, slots: int, seconds_left: float | None, now: float) -> str:
    """Return for example `about 3 min 12 s left`, or the end of the time budget, in `seconds_left`, if that is sooner.

    Without a time budget it is empty until trials have ended.
    """
    left = estimate_left(trials, budget, slots, now)
    if seconds_left is not None and (left is None or seconds_left < left):
        return f"time budget ends in {format_seconds(max(0.0, seconds_left))}"
    return "" if left is None else f"about {format_seconds(left)} left"


def estimate_left(trials: Sequence[Trial], budget: int, slots: int, now: float) -> float | None:
    """Estimate the seconds left. None if no trial has ended yet, in this session or an earlier one."""
    ended = [trial for trial in trials if trial.state in ("completed", "stopped", "diverged")]
    # Baselines are never stopped, so their length does not predict that of other trials.
    ended = [trial for trial in ended if trial.origin != "baseline"] or ended
    if not ended:
        return None
    lengths = [_spent(trial, now) for trial in ended]
    open_ = [_remaining(trial, lengths, now) for trial in trials if trial.state in UNFINISHED]
    new, mean = budget - len(trials), fmean(lengths)
    return max((sum(open_) + new * mean) / max(1, min(slots, len(trials))), *open_, mean if new else 0.0)


def _spent(trial: Trial, now: float) -> float:
    """Return the seconds of a trial so far; without its start, if it was interrupted."""
    is_whole = not trial.resumes and trial.state != "interrupted"
    return (trial.ended or now) - trial.started if is_whole else trial.seconds or 0.0


def _remaining(trial: Trial, lengths: Sequence[float], now: float) -> float:
    """Estimate the seconds left: the mean over trials that took longer, or all of its epochs if none did."""
    spent = _spent(trial, now)
    beyond = [length - spent for length in lengths if length > spent]
    if beyond and trial.origin != "baseline":
        return fmean(beyond)
    return spent * (trial.epochs / trial.epoch - 1) if trial.epoch else fmean(lengths)
