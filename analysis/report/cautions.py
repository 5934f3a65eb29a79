"""Warnings about a sweep's results, in sentences (deep learning tuning playbook, Godbole et al. 2023)."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Real
from typing import TYPE_CHECKING

import pandas as pd
from scipy.stats import fisher_exact

from analysis.effects.search_parameters import list_levels, list_parameters, matches, scale
from analysis.report.sentences import describe_rivals
from ledger.formatting import format_points, plural
from spaces.parameters.domains import Choice, Interval, IntUniform, LogUniform, find_parameters, format_value
from training.recipe import Recipe
from training.schema import slot_of
from training.score_metrics import MAXIMISED

if TYPE_CHECKING:
    from analysis.effects.lead import Lead
    from ledger.tables import Sweep

EDGE = 0.05  # A value is at the end of an interval if it is within this share of its width.
FEW = 12  # With fewer full-length trials, intervals are wide.
SUSPECT = 0.05  # Failures are named with a level if they are this unlikely to be there by chance.
RESTLESS = 0.25  # Best epochs are compared with the last ones from this many standard errors of a score on.
LOST = {"diverged": "diverged", "failed": "failed", "out_of_memory": "ran out of memory"}


def list_cautions(sweep: Sweep, lead: Lead) -> list[str]:
    """Return all warnings."""
    return [
        *_warn_of_noise(sweep, lead),
        *_warn_of_best_epochs(sweep),
        *_warn_of_edges(sweep),
        *_warn_of_counts(sweep),
        *_warn_of_losses(sweep),
    ]


def _warn_of_best_epochs(sweep: Sweep) -> Iterator[str]:
    """Warn if the best epochs score visibly more than the last ones: a part of that is luck, most with a restless rate."""
    done = sweep.completed
    if sweep.space.search.score == "last" or sweep.metric not in sweep.curves or not len(done):
        return
    ends = sweep.curves[["trial", "epoch", sweep.metric]].rename(columns={"epoch": "epochs_done", sweep.metric: "last"})
    gap = sweep.sign * (done.score - done.merge(ends, how="left")["last"].set_axis(done.index))
    if gap.mean() > RESTLESS * done.standard_error.mean():
        yield (
            f"A score is that of a trial's best epoch, {format_points(sweep.metric, gap.mean())} better than its last one "
            "on average; a part of this is luck, and it favours restless trainings, such as those with a constant learning "
            "rate. search.score=last scores the last epoch."
        )


def _warn_of_edges(sweep: Sweep) -> Iterator[str]:
    """Warn if the best trial's value is at the end of an interval, because a better value may be outside."""
    if not len(sweep.completed):
        return
    best = sweep.completed.iloc[0]
    for path, domain in _intervals_of(sweep, best):
        if not isinstance(best[path], Real):  # such as `auto`, of a baseline
            continue
        place = scale(domain, best[path])
        is_low = place < 0.5
        if (0 <= place < EDGE or 1 >= place > 1 - EDGE) and _goes_on(domain, is_low, path, best):
            end = "lower" if is_low else "upper"
            yield (
                f"{path}: the best trial's {best[path]:.3g} is at the {end} end of "
                f"{format_value(domain.low)} to {format_value(domain.high)}; a better value may lie beyond. Widen it."
            )


def _intervals_of(sweep: Sweep, trial: pd.Series) -> Iterator[tuple[str, Interval]]:
    for parameter in list_parameters(sweep.space.recipe):
        if isinstance(parameter.domain, Interval):
            yield parameter.name, parameter.domain
            continue
        taken = [it for it in list_levels(parameter) if not it.detail and matches(it, trial.to_frame().T)[0]]
        option = taken[0].part.options[0] if taken and isinstance(taken[0].part, Choice) else None
        for steps, domain in find_parameters(option) if isinstance(option, dict) else ():
            if isinstance(domain, Interval):
                yield ".".join([parameter.name, *map(str, steps)]), domain


def _goes_on(domain: Interval, is_low: bool, path: str, trial: pd.Series) -> bool:
    """Whether values beyond an end are legal. A label smoothing below 0, for example, is not."""
    field, _, inner = path.partition(".")
    slot = slot_of(Recipe, field)
    if inner:
        discriminator = slot.discriminator or ""
        slot = slot_of(slot.part({discriminator: trial.get(f"{field}.{discriminator}")}), inner)
    end, outwards = (domain.low, -1) if is_low else (domain.high, 1)
    if isinstance(domain, IntUniform):
        return slot.problem(end + outwards) is None
    return slot.problem(end * 1.001**outwards if isinstance(domain, LogUniform) else end + outwards * 1e-6) is None


def _warn_of_counts(sweep: Sweep) -> Iterator[str]:
    if (full := len(sweep.completed)) < FEW:
        yield (
            f"Only {plural(full, 'trial')} ran to full length, so intervals are wide. Run more "
            f"(sweep resume {sweep.called} --trials N)."
        )

    if count := len(sweep.copies):
        yield (
            f"{plural(count, 'trial')} of {len(sweep.trials)} repeated the recipe and the seed of another one, so "
            f"{len(sweep.different)} trials count here."
        )


def _warn_of_losses(sweep: Sweep) -> Iterator[str]:
    trials = sweep.different.set_index("trial", drop=False)
    for state, words in LOST.items():
        lost = trials.state == state
        if not lost.any():
            continue
        suspects = []
        for parameter in list_parameters(sweep.space.recipe):
            for level in list_levels(parameter):
                inside = matches(level, sweep.recipes.loc[trials.index])
                table = [[(part & rows).sum() for part in (lost, ~lost)] for rows in (inside, ~inside)]
                chance = fisher_exact(table, alternative="greater").pvalue
                if chance < SUSPECT:
                    suspects.append((chance, f"{parameter.name}={level.label} ({table[0][0]} of {inside.sum()})"))
        where = f", most often with {', '.join(text for _, text in sorted(suspects)[:2])}" if suspects else ""
        yield f"{plural(int(lost.sum()), 'trial')} of {len(trials)} {words}{where}."


def _warn_of_noise(sweep: Sweep, lead: Lead) -> Iterator[str]:
    if rivals := describe_rivals(lead):
        yield rivals
    perfect = int((sweep.completed.score == 1).sum()) if sweep.metric in MAXIMISED else 0
    if perfect:
        others = f", nor did {perfect - 1} more" if perfect > 1 else ""
        yield f"The best, {lead.best}, made no mistake in validation{others}: only more images can show how good it is."
