"""How far the best trial is ahead of the best baseline, for new seeds and new images.

A score contains the luck of one seed and of the validation images, and the best of many scores was also the luckiest
(the winner's curse). So the lead here is the difference of the *expected* scores of the two recipes under the model of
effects. Its prior shrinks what few trainings show, and a posterior needs no correction for the choice of the best (Dawid
1994, "Selection paradoxes of Bayesian inference"). docs/report.md has its calibration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from analysis.effects.technique_effects import CONFIDENCE, SEED, WIDER, Fitted, fit_sweep
from ledger.tables import Sweep, make_tables
from training.score_metrics import SOFT

if TYPE_CHECKING:
    from ledger.record import SweepRecord
    from training.loop.epoch_report import Answers

CLEAR = (1 + CONFIDENCE) / 2  # A lead is clear from this probability on that it is positive: its interval is above 0.
MAY_BE_BEST = 0.05  # A trial may be as good as the best with at least this probability.
FAR = 8  # Standard errors between scores. Even with seeds twice as noisy as images, 1 % of equal recipes are so far apart.
# Standard error of a difference of expected scores on the validation images, in that of independent scores. Two
# trainings mostly mistake the same images: 0.37 over 14 seeds of benchmarks/demo.py, validation beside unseen images.
PAIRED = 0.4
BAGS = 200  # drawings of images for the expected score
SHARES = ("val_accuracy", "val_balanced_accuracy", *SOFT)  # scores that are shares of right images

# alone: nothing to compare. baseline: the best trial is a baseline.
Verdict = Literal["alone", "baseline", "open", "clear"]


@dataclass(frozen=True)
class Lead:
    """The best of `count` completed trials, copies among them, beside the best baseline.

    `observed` is the difference of the scores. The difference of the expected scores has the mean `mean`, lies between
    `low` and `high` nine times in ten, and is positive with `probability`; these are NaN if too few trials completed.
    `expected` is the score that the best is likely to have on new images, with the standard error `expected_error`, as
    in `expect_score`; NaN where that is not known. All are in the score's unit, and positive is better. `rivals` are the
    trials that may be as good as the best.
    """

    best: str
    baseline: str | None
    count: int
    observed: float
    mean: float
    low: float
    high: float
    probability: float
    rivals: tuple[str, ...]
    only_baselines: bool = False  # no other trial completed
    expected: float = np.nan
    expected_error: float = np.nan

    @property
    def verdict(self) -> Verdict:
        if self.baseline is None:
            return "alone"
        if self.baseline == self.best:
            return "baseline"
        return "clear" if self.probability >= CLEAR else "open"


def judge_record(record: SweepRecord) -> tuple[Fitted, Lead]:
    """The model of effects of a sweep, and the lead of its best trial; at least one trial must have completed."""
    tables = make_tables(record)
    fitted = fit_sweep(tables)
    lead = judge_lead(tables, fitted)
    assert lead is not None
    return fitted, lead


def judge_lead(sweep: Sweep, fitted: Fitted) -> Lead | None:
    """The lead of the best trial of the sweep that the model was fitted to; None if no trial completed."""
    done = sweep.completed
    if not len(done):
        return None
    places = {trial: place for place, trial in enumerate(fitted.design.recipes.index)}
    done = done[done.trial.isin(places)]  # a large sweep is fitted to a part of its trials
    best, bases = done.iloc[0], done[done.is_baseline]
    errors = np.hypot(best.standard_error, done.standard_error.to_numpy()) * PAIRED
    draws = fitted.draw_leads(places[best.trial], [places[trial] for trial in done.trial], np.nan_to_num(errors))
    middle = draws.mean(axis=0)
    draws = middle + WIDER * (draws - middle)  # ASHA and TPE select by luck, which the model does not know
    baseline = None if bases.empty else bases.iloc[0]
    lead = np.full(1, np.nan) if baseline is None else draws[:, done.index.get_loc(baseline.name)]
    low, high = np.quantile(lead, [1 - CLEAR, CLEAR])
    answers = [sweep.answers.get(trial, ((), "")) for trial in done.trial]
    expected, expected_error = expect_score(sweep.metric, answers) or (np.nan, np.nan)
    behind = (draws < 0).mean(axis=0)
    behind[abs(best.score - done.score) > FAR * best.standard_error] = 0.0
    ended = sweep.trials[(sweep.trials.state == "completed") & sweep.trials.score.notna()]
    return Lead(
        best=f"{best.trial:04d}",
        baseline=None if baseline is None else f"{baseline.trial:04d}",
        count=len(ended),
        observed=0.0 if baseline is None else float(sweep.sign * (best.score - baseline.score)),
        mean=float(lead.mean()),
        low=float(low),
        high=float(high),
        probability=float((lead > 0).mean()),
        rivals=tuple(f"{trial:04d}" for trial in done.trial[1:][behind[1:] >= MAY_BE_BEST]),
        only_baselines=bool(ended.is_baseline.all()),
        expected=expected,
        expected_error=expected_error,
    )


def expect_score(metric: str, answers: list[Answers], count: int = 1) -> tuple[float, float] | None:
    """Return the expected score of the best trial on new images, or of the mean of the `count` best, and its error.

    Where a soft accuracy chooses, it is the accuracy of what is chosen. The best of many was also lucky on the images
    that chose it. So images are drawn with replacement, trials are chosen on those, and answer for the images that were not
    drawn (bootstrap bias corrected, Tsamardinos et al. 2018). None where the metric is no share of right images, or the
    answers of the first, which is the best, are not known.
    """
    labels, size = np.array(answers[0][0]), len(answers[0][1])
    if metric not in SHARES or not size or len(labels) < 2 or size % (2 * len(labels)):
        return None
    digits = "".join(text for known, text in answers if known == answers[0][0] and len(text) == size)
    shares = np.frombuffer(bytes.fromhex(digits), np.uint8).reshape(-1, len(labels), size // 2 // len(labels))
    groups = labels if "balanced" in metric else 0 * labels
    _, places, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    weights, rng = 1 / (sizes[places] * len(sizes)), np.random.default_rng(SEED)
    drawn = rng.multinomial(len(labels), np.full(len(labels), 1 / len(labels)), BAGS)
    worth = soften(shares, labels) if metric in SOFT else shares.argmax(2) == labels
    scores = (drawn * weights) @ worth.T
    order = np.argsort(scores + 1e-9 * rng.random(scores.shape), axis=1)  # any of equal ones
    right = np.array([shares[chosen].sum(0, dtype=int).argmax(1) == labels for chosen in order[:, -count:]])
    outside = drawn == 0
    expected, images = float(weights @ ((right & outside).sum(0) / outside.sum(0))), 1 / float((weights**2).sum())
    share = (expected * images + 2) / (images + 4)  # as in the standard error of a score
    return expected, float(np.sqrt(share * (1 - share) / (images + 4)))


def soften(shares: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return how right each model is on each image (models, images); `shares` is (models, images, classes), in 255ths."""
    import torch

    from training.loop import metrics

    known = torch.from_numpy(labels).long()
    logits = torch.from_numpy(np.log(np.maximum(shares, 0.5)))  # half of the least share in place of none
    return np.stack([metrics.soften(metrics.judge(one, known)[3]).numpy() for one in logits])
