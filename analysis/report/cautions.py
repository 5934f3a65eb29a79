"""Warnings about a sweep's results, in sentences (deep learning tuning playbook, Godbole et al. 2023)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pandas as pd
from scipy.stats import fisher_exact

from analysis.effects.search_parameters import is_interval, list_levels, list_parameters, matches, scale
from analysis.effects.selection import Candidate, judge_best
from analysis.formatting import plural
from analysis.report.probe import compare_with_probe
from analysis.report.significance import describe_lead, describe_ties
from spaces.parameters.domains import Choice, Interval, IntUniform, LogUniform, find_parameters, format_value
from spaces.schema import slot_of
from training.recipe import Recipe

if TYPE_CHECKING:
    from analysis.reading.sweep_tables import Sweep

EDGE = 0.05  # A value is at the end of an interval if it is within this share of its width.
FEW = 12  # With fewer full-length trials, intervals are wide.
SUSPECT = 0.05  # Failures are named with a level if they are this unlikely to be there by chance.
LOST = {"diverged": "diverged", "failed": "failed", "out_of_memory": "ran out of memory"}


def list_cautions(sweep: Sweep, effects: pd.DataFrame) -> list[str]:
    """All warnings; `effects` is the table of `measure_effects`."""
    return [
        *_warn_of_probe(sweep),
        *_warn_of_noise(sweep),
        *_warn_of_edges(sweep),
        *_warn_of_few(sweep, effects),
        *_warn_of_losses(sweep),
    ]


def _warn_of_probe(sweep: Sweep) -> Iterator[str]:
    if len(sweep.completed):
        best = sweep.completed.iloc[0]
        yield from compare_with_probe(sweep.metric, sweep.figures, f"{best.trial:04d}", best.score)


def _warn_of_edges(sweep: Sweep) -> Iterator[str]:
    """Warn if the best trial's value is at the end of an interval, because a better value may be outside."""
    if not len(sweep.completed):
        return
    best = sweep.completed.iloc[0]
    for path, domain in _intervals_of(sweep, best):
        place = scale(domain, best[path])
        is_low = place < 0.5
        if (0 <= place < EDGE or 1 >= place > 1 - EDGE) and _goes_on(domain, is_low, path, best):
            end = "lower" if is_low else "upper"
            yield (
                f"{path}: the best trial's {best[path]:.3g} is at the {end} end of "
                f"{format_value(domain.low)} to {format_value(domain.high)}; a better value may lie beyond. Widen it."
            )


def _intervals_of(sweep: Sweep, trial: pd.Series) -> Iterator[tuple[str, Interval]]:
    """The intervals from which a trial's values were drawn, each with its path."""
    for parameter in list_parameters(sweep.space.recipe):
        if is_interval(parameter.domain):
            yield parameter.name, parameter.domain
            continue
        taken = [
            level for level in list_levels(parameter) if not level.detail and matches(level, trial.to_frame().T)[0]
        ]
        option = taken[0].part.options[0] if taken and isinstance(taken[0].part, Choice) else None
        for steps, domain in find_parameters(option) if isinstance(option, dict) else ():
            if is_interval(domain):
                yield ".".join([parameter.name, *map(str, steps)]), domain


def _goes_on(domain: Interval, is_low: bool, path: str, trial: pd.Series) -> bool:
    """Whether values beyond an end are legal. A label smoothing below 0, for example, is not."""
    field, _, inner = path.partition(".")
    slot = slot_of(Recipe, field)
    if inner:
        kind = slot.discriminator or ""
        slot = slot_of(slot.part({kind: trial.get(f"{field}.{kind}")}), inner)
    end, outwards = (domain.low, -1) if is_low else (domain.high, 1)
    if isinstance(domain, IntUniform):
        return slot.problem(end + outwards) is None
    return slot.problem(end * 1.001**outwards if isinstance(domain, LogUniform) else end + outwards * 1e-6) is None


def _warn_of_few(sweep: Sweep, effects: pd.DataFrame) -> Iterator[str]:
    full = len(sweep.completed)
    if full < FEW:
        yield (
            f"Only {plural(full, 'trial')} ran to full length, so intervals are wide. Run more "
            f"(sweep extend {sweep.name} --trials N)."
        )
    unknown = effects[(effects.verdict == "unknown") & ~effects.detail.astype(bool)]
    if len(unknown):
        names = ", ".join(f"{row.parameter}={row.level}" for row in unknown.head(6).itertuples())
        more = f" and {len(unknown) - 6} more" if len(unknown) > 6 else ""
        yield f"These levels never ran to full length, so their effects are unknown: {names}{more}."


def _warn_of_losses(sweep: Sweep) -> Iterator[str]:
    """Warn about lost trials, and name the levels in which they are most frequent."""
    trials = sweep.trials.set_index("trial", drop=False)
    for state, words in LOST.items():
        lost = trials.state == state
        if not lost.any():
            continue
        suspects = []
        for parameter in list_parameters(sweep.space.recipe):
            for level in list_levels(parameter):
                inside = matches(level, sweep.recipes)
                table = [
                    [(lost & inside).sum(), (~lost & inside).sum()],
                    [(lost & ~inside).sum(), (~lost & ~inside).sum()],
                ]
                chance = fisher_exact(table, alternative="greater").pvalue
                if chance < SUSPECT:
                    suspects.append((chance, f"{parameter.name}={level.label} ({table[0][0]} of {inside.sum()})"))
        where = f", most often with {', '.join(text for _, text in sorted(suspects)[:2])}" if suspects else ""
        yield f"{plural(int(lost.sum()), 'trial')} of {len(trials)} {words}{where}."


def list_candidates(sweep: Sweep) -> list[Candidate]:
    """The completed trials, the best first."""
    return [
        Candidate(f"{row.trial:04d}", row.score, row.standard_error, bool(row.is_baseline))
        for row in sweep.completed.itertuples()
    ]


def _warn_of_noise(sweep: Sweep) -> Iterator[str]:
    """Warn if luck explains the best trial's lead over others, or over the baseline."""
    done = sweep.completed
    if len(done) < 2:
        return
    found = judge_best(list_candidates(sweep))
    if len(found.tied) > 1:
        yield describe_ties(sweep.metric, found)
    lead = describe_lead(sweep.metric, found)
    if lead and found.lead != "clear":
        yield lead
