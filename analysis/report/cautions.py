"""What to be careful about before believing a sweep, in sentences (deep learning tuning playbook, Godbole et al. 2023)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd
from scipy.stats import fisher_exact

from analysis.effects.search_parameters import is_interval, list_holes, list_levels, matches, scale
from analysis.effects.selection import luck_of_best
from analysis.report.formatting import format_points, format_score, plural
from spaces.parameters.domains import Choice, Interval, IntUniform, LogUniform, find_holes, format_value
from spaces.schema import slot_of
from training.recipe import Recipe

if TYPE_CHECKING:
    from analysis.reading.sweep_tables import Sweep

EDGE = 0.05  # of an interval's width
FEW = 12  # trials of full length
SUSPECT = 0.05  # chance that failures gather in a level like this by accident
LOST = {"diverged": "diverged", "failed": "failed", "out_of_memory": "ran out of memory"}


def list_cautions(sweep: Sweep, effects: pd.DataFrame) -> list[str]:
    return [
        *_warn_of_noise(sweep),
        *_warn_of_edges(sweep),
        *_warn_of_few(sweep, effects),
        *_warn_of_losses(sweep),
    ]


def _warn_of_edges(sweep: Sweep) -> Iterator[str]:
    """The best trial's value at the end of an interval, where a better one may lie beyond."""
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


def _intervals_of(sweep: Sweep, trial: pd.Series) -> Iterator[tuple[str, Any]]:
    """The intervals that a trial's values came from."""
    for hole in list_holes(sweep.space.recipe):
        if is_interval(hole.domain):
            yield hole.name, hole.domain
            continue
        taken = [level for level in list_levels(hole) if not level.detail and matches(level, trial.to_frame().T)[0]]
        option = taken[0].part.options[0] if taken and isinstance(taken[0].part, Choice) else None
        for steps, domain in find_holes(option) if isinstance(option, dict) else ():
            if is_interval(domain):
                yield ".".join([hole.name, *map(str, steps)]), domain


def _goes_on(domain: Interval, is_low: bool, path: str, trial: pd.Series) -> bool:
    """Whether values beyond an end are legal: below a label smoothing of 0 there is nothing to find."""
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
        names = ", ".join(f"{row.hole}={row.level}" for row in unknown.head(6).itertuples())
        more = f" and {len(unknown) - 6} more" if len(unknown) > 6 else ""
        yield f"Never seen at full length, so unknown, not bad: {names}{more}."


def _warn_of_losses(sweep: Sweep) -> Iterator[str]:
    """How many trials were lost, and in which level more often than elsewhere."""
    trials = sweep.trials.set_index("trial", drop=False)
    for state, words in LOST.items():
        lost = trials.state == state
        if not lost.any():
            continue
        suspects = []
        for hole in list_holes(sweep.space.recipe):
            for level in list_levels(hole):
                inside = matches(level, sweep.recipes)
                table = [
                    [(lost & inside).sum(), (~lost & inside).sum()],
                    [(lost & ~inside).sum(), (~lost & ~inside).sum()],
                ]
                chance = fisher_exact(table, alternative="greater").pvalue
                if chance < SUSPECT:
                    suspects.append((chance, f"{hole.name}={level.label} ({table[0][0]} of {inside.sum()})"))
        where = f", most of all with {', '.join(text for _, text in sorted(suspects)[:2])}" if suspects else ""
        yield f"{plural(int(lost.sum()), 'trial')} of {len(trials)} {words}{where}."


def _warn_of_noise(sweep: Sweep) -> Iterator[str]:
    """A winner that is not ahead of the baseline, or of others, by more than the luck of the best of so many."""
    done = sweep.completed
    if len(done) < 2:
        return
    best = done.iloc[0]
    gap = (done.score - best.score).abs()
    error = (done.standard_error**2 + best.standard_error**2) ** 0.5
    luck = luck_of_best(len(done)) * error
    tied = done[gap <= luck]
    if len(tied) > 1:
        yield (
            f"{len(tied)} of {len(done)} completed trials, the best ({best.trial:04d}, "
            f"{format_score(sweep.metric, best.score, best.standard_error)}) included, cannot be told apart on these "
            f"validation images, as the best was picked among {len(done)} (95 %): "
            f"sweep confirm {sweep.name} trains the best again with other seeds."
        )
    base = done[done.is_baseline]
    if best.is_baseline:
        yield f"No recipe beat the baseline: the best trial, {best.trial:04d}, is one."
    elif len(base) and gap[base.index[0]] <= luck[base.index[0]]:
        yield (
            f"The best is ahead of the best baseline by {format_points(sweep.metric, gap[base.index[0]])}: a "
            f"hint, no proof, as the best of {len(done)} may be this far ahead by luck."
        )
