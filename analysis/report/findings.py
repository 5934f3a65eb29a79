"""What a sweep found, computed once, and in sentences: effects, interactions, costs, the best trial and its lead."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.effects.lead import Lead, judge_lead
from analysis.effects.search_parameters import list_parameters
from analysis.effects.technique_effects import NOT_ENOUGH, fit_sweep, measure_effects, measure_interactions
from analysis.report.cautions import list_cautions
from analysis.report.choices import describe_choice, list_changes
from ledger.formatting import format_effect, format_megabytes, format_points, format_score, format_seconds, plural
from ledger.tables import Sweep
from spaces.parameters.domains import format_short
from training.errors import UserError

PAIRS = 8
WORDS = ("useful", "harmful", "no effect seen", NOT_ENOUGH)
KNOWN = WORDS[:2]


@dataclass(frozen=True)
class Findings:
    """Everything that a report shows, computed once."""

    sweep: Sweep
    lead: Lead
    effects: pd.DataFrame
    interactions: pd.DataFrame
    cautions: list[str]
    savings: pd.Series


@dataclass(frozen=True)
class Winner:
    """The best trial: a sentence with its score, and what it chose otherwise than the best baseline."""

    trial: int
    sentence: str
    changes: list[str]


def find(sweep: Sweep) -> Findings:
    """Compute the findings of a sweep."""
    if not list_parameters(sweep.space.recipe):
        raise UserError(f"{sweep.name}: its space has no search parameters, so its trials do not differ.")
    refuse_unfinished(sweep)
    fitted = fit_sweep(sweep)
    effects, lead = measure_effects(fitted), judge_lead(sweep, fitted)
    assert lead is not None  # because a trial completed
    return Findings(
        sweep, lead, effects, measure_interactions(fitted), list_cautions(sweep, lead), measure_savings(sweep)
    )


def refuse_unfinished(sweep: Sweep) -> None:
    """Refuse a sweep without a completed trial: no effect can be measured."""
    if not len(sweep.completed):
        is_running, is_over = sweep.state == "running", sweep.state == "completed"
        hint = f"Continue with: sweep resume {sweep.called}{' --trials 10' if is_over else ''}."
        raise UserError(
            f"{sweep.name}: none of its {len(sweep.trials)} trials has completed, so there is nothing to compare. "
            f"{'Wait for it.' if is_running else hint}"
        )


def order_effects(effects: pd.DataFrame) -> pd.DataFrame:
    """The rows by verdict, in the order of `WORDS`; the largest effect of each verdict first."""
    by_size = effects.sort_values("effect", key=abs, ascending=False, kind="stable")
    return by_size.sort_values("verdict", key=lambda words: words.map(WORDS.index), kind="stable")


def measure_savings(sweep: Sweep) -> pd.Series:
    """Compare the epochs and seconds that a sweep ran with those, `_full`, that it would have run without early stopping.

    Each epoch that never ran counts as long as the mean of the trial's own epochs. `stopped` is a number of trials.
    """
    trials = sweep.trials[sweep.trials.epochs_done > 0]
    stopped = trials.state == "stopped"
    pace = trials.seconds / trials.epochs_done
    full = np.where(stopped, trials.epochs, trials.epochs_done)
    return pd.Series(
        {
            "epochs": trials.epochs_done.sum(),
            "epochs_full": full.sum(),
            "seconds": trials.seconds.sum(),
            "seconds_full": (pace * full).sum(),
            "stopped": stopped.sum(),
        },
        dtype=float,
    )


def describe_effects(findings: Findings) -> Iterator[str]:
    """One sentence for the useful levels, and one for the harmful ones."""
    metric, rows = findings.sweep.metric, findings.effects[~findings.effects.detail.astype(bool)]
    for word in KNOWN:
        ordered = order_effects(rows[rows.verdict == word])
        names = [
            f"{row.parameter}={row.level} {format_effect(metric, row.effect, row.low, row.high)}"
            for row in ordered.itertuples()
        ]
        if names:
            yield f"{word.capitalize()}: {', '.join(names)}."


def describe_reach(findings: Findings) -> Iterator[str]:
    """From which size on effects are seen: half the width of the median interval, if there is one."""
    rows = findings.effects[~findings.effects.detail.astype(bool)]
    if not math.isnan(reach := float((rows.high - rows.low).median() / 2)):
        size = format_points(findings.sweep.metric, reach)
        yield f"With these trials and images, effects below about {size} are hardly seen, and twice as large ones mostly are."


def describe_interactions(findings: Findings) -> Iterator[str]:
    """One sentence for each clear interaction."""
    for row in clear_interactions(findings).itertuples():
        effect = format_effect(findings.sweep.metric, row.effect, row.low, row.high)
        yield (
            f"{row.one} and {row.other} together change the score by {'more' if row.effect > 0 else 'less'} than the sum of "
            f"their single effects: {effect}."
        )


def clear_interactions(findings: Findings) -> pd.DataFrame:
    """The interactions whose interval excludes zero, at most `PAIRS` of them."""
    rows = findings.interactions
    return rows[(rows.low > 0) | (rows.high < 0)].head(PAIRS)


def describe_costs(findings: Findings) -> Iterator[str]:
    """What early stopping saved, and the largest memory."""
    saved = findings.savings
    share = 1 - saved.epochs / saved.epochs_full if saved.epochs_full else 0.0
    if saved.stopped:
        times = ""
        if saved.seconds_full > 0:
            times = f", about {format_seconds(saved.seconds_full - saved.seconds)} of training"
        yield (
            f"Stopping {plural(int(saved.stopped), 'trial')} early saved {100 * share:.0f} % of the epochs that full-length "
            f"training would have taken ({saved.epochs:,.0f} of {saved.epochs_full:,.0f} were run){times}."
        )
    if not math.isnan(most := findings.sweep.trials.memory_mb.max()):
        yield f"The largest peak memory of a trial was {format_megabytes(most)}."


def describe_baseline(sweep: Sweep) -> str:
    """The trial that effects are measured from, with its choices; at least one trial must have completed."""
    ranked = pd.concat([sweep.baselines, sweep.completed])
    trial = int(ranked.trial.iloc[0])
    parameters, recipe = list_parameters(sweep.space.recipe), sweep.recipes.loc[trial]
    choices = [text for parameter in parameters for text in describe_choice(parameter, recipe)]
    rate = f"optimizer.lr={format_short(recipe['optimizer.lr'])}"
    listed = ", ".join(choices if rate in choices else [*choices, rate])
    role = "the best baseline" if bool(ranked.is_baseline.iloc[0]) else "the best trial, because no baseline completed"
    return f"Effects are relative to trial {trial:04d}, {role}: {listed}."


def describe_winner(sweep: Sweep) -> Winner:
    """The best trial; at least one trial must have completed."""
    best = sweep.completed.iloc[0]
    score = format_score(sweep.metric, best.score, best.standard_error)
    base = sweep.baselines
    if best.is_baseline or not len(base):
        role = ", a baseline," if best.is_baseline else ""
        return Winner(int(best.trial), f"Trial {best.trial:04d}{role} reached {score}.", [])
    first = base.trial.iloc[0]
    recipe, other = (sweep.recipes.loc[number].to_dict() for number in (best.trial, first))
    sentence = f"Trial {best.trial:04d} reached {score}. Its differences from the best baseline, {first:04d}:"
    return Winner(int(best.trial), sentence, list_changes(list_parameters(sweep.space.recipe), recipe, other))
