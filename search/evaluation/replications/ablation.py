"""`sweep ablate`: remove each technique from the winner, and add each to the baseline, on the same seeds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from analysis.effects.seed_intervals import mean_interval, paired_interval, score_noise
from analysis.report.page import Chart, Section, Verdict, interval_chart, interval_row, render_page
from ledger.formatting import format_score, plural, unit_of
from ledger.recipe_text import short_part
from ledger.record import SweepRecord
from ledger.trials import Trial
from search.evaluation.replications.confirm_page import format_gap
from search.evaluation.replications.findings import BASELINE, Ablation, TechniqueWorth, Worth
from search.evaluation.replications.replication import (
    Conclusion,
    Replicated,
    Variants,
    choose_baseline,
    choose_best,
    find_replication,
    replicate,
)
from training.contract.part import Part
from training.errors import UserError
from training.recipe import Recipe, read_recipe

if TYPE_CHECKING:
    from search.runner.display import Display

WINNER = "winner"
SHARED = ("data", "seed")  # the same in every recipe of a sweep
TECHNIQUES = ("technique", "in the winner", "in the baseline", "value")
METHOD = (
    "Each difference is computed per seed (Student's t at 95 %, with the noise pooled over all recipes, as in randomized "
    "blocks). Among {count} comparisons about one in twenty would exclude 0 by luck alone, so a difference is called "
    "proven only if its interval still excludes 0 at 0.05 / {count} (Bonferroni). The effect of a technique depends on "
    "the others: the two columns may differ, and their sum is not the gain of the winner."
)


def ablate(source: SweepRecord, seeds: int | None, seconds: float | None, display: Display) -> Replicated:
    """Train the winner and the baseline with one technique switched at a time, or continue an existing ablation.

    Raises:
        Interrupted: it was interrupted.
    """

    def choose() -> Variants:
        winner, baseline = _find_winner(source), choose_baseline(source)
        techniques, variants = _build_variants(winner.recipe, baseline.recipe, source.called)
        display.line(
            f"{plural(len(techniques), 'technique')} of trial {winner.name}: {plural(len(variants.recipes), 'recipe')}."
        )
        notes = [f"The winner is trial {winner.name} of {source.name}.", *variants.notes]
        return Variants(variants.recipes, notes)

    return replicate(source, "ablate", seeds, seconds, choose, display)


def _build_variants(winner: Recipe, baseline: Recipe, sweep: str) -> tuple[list[str], Variants]:
    """Return the techniques that are on in the winner, or differ from the baseline, and recipes with one of them switched.

    The recipes begin with `winner` and `baseline`.
    """
    recipes, notes, techniques = {WINNER: winner, BASELINE: baseline}, [], []
    for field, value, off in _switches(winner, baseline):
        techniques.append(field)
        changes = [(f"without {field}", winner, off)]
        if value != getattr(baseline, field):
            changes.append((f"with {field}", baseline, value))
        else:
            notes.append(f"{field} is on in the baseline too, so its effect there is not measured.")
        for label, recipe, new in changes:
            try:
                recipes[label] = read_recipe(recipe.model_copy(update={field: new}).model_dump())
            except UserError as error:
                base = WINNER if recipe is winner else BASELINE
                notes.append(f"The {base} {label} is left out, because that combination is invalid: {error}")
    if not techniques:
        raise UserError(
            "The best recipe is the baseline with no technique on, so there is nothing to switch. "
            f"Continue the search until another recipe is best: sweep resume {sweep} --trials N."
        )
    return techniques, Variants(recipes, notes)


def _switches(winner: Recipe, baseline: Recipe) -> Iterator[tuple[str, object, object]]:
    for field, info in Recipe.model_fields.items():
        if field in SHARED:
            continue
        value = getattr(winner, field)
        has_off = isinstance(info.default, Part) and info.default.has_off
        off = info.default if has_off else getattr(baseline, field)
        if field == "augmentation":  # the data loading backend is not a technique
            off = off.model_copy(update={"backend": value.backend})
        if value != off:
            yield field, value, off


def _find_winner(source: SweepRecord) -> Trial:
    """Find the trial whose recipe `sweep confirm` found best; without a confirmation, the best of the search."""
    trials = source.trials
    best = choose_best(source, 1)[0]
    confirmed = find_replication(source, "confirm")
    if confirmed is None or not (scores := confirmed.scores()):
        return best
    label = max(scores, key=lambda name: trials.sign * sum(scores[name]))
    return choose_baseline(source) if label == BASELINE else trials.by_number[int(label)]


def conclude_ablation(replicated: Replicated) -> Conclusion:
    """Measure the effect of each technique, the best first."""
    ablation = measure_worth(replicated)
    metric, rows = ablation.metric, _list_rows(ablation)
    above = f"The effect of each technique on {metric}, on {len(ablation.seeds)} fresh seeds, with 95 % intervals:"
    metrics = {f"worth_{row.technique}": row.in_winner.interval.mean for row in ablation.techniques if row.in_winner}
    page, below = _render(ablation), ablation.notes
    return Conclusion(replicated, ablation, page, above, TECHNIQUES, rows, below, metrics, time.time())


def _list_rows(ablation: Ablation) -> list[list[str]]:
    metric = ablation.metric
    return [
        [row.technique, _format_worth(metric, row.in_winner), _format_worth(metric, row.in_baseline), row.value]
        for row in ablation.techniques
    ]


def measure_worth(replicated: Replicated) -> Ablation:
    """Return the effect of each technique in the winner and in the baseline, best first; positive is better."""
    scores, sign = replicated.scores(), replicated.trials.sign
    if not {WINNER, BASELINE} & scores.keys():
        raise UserError(
            f"{replicated.record.name}: neither the winner nor the baseline completed on every seed. "
            + " ".join(replicated.describe_incomplete())
        )
    pairs = {label: (WINNER, label) for label in scores if label.startswith("without ")}
    pairs |= {label: (label, BASELINE) for label in scores if label.startswith("with ")}
    pairs = {label: pair for label, pair in pairs.items() if set(pair) <= scores.keys()}
    signed = {label: [sign * score for score in values] for label, values in scores.items()}
    names = dict.fromkeys(label.partition(" ")[2] for label in replicated.by_label if " " in label)

    def worth(label: str) -> Worth | None:
        if label not in pairs:
            return None
        alone, together = paired_interval(signed, *pairs[label]), paired_interval(signed, *pairs[label], len(pairs))
        return Worth(alone, proven=together.excludes_zero, likely=alone.excludes_zero)

    winner = replicated.by_label[WINNER][0].recipe
    techniques = [
        TechniqueWorth(name, short_part(winner, name), worth(f"without {name}"), worth(f"with {name}"))
        for name in names
    ]
    noise = score_noise(scores)
    return Ablation(
        replicated.record.name,
        replicated.event.of,
        replicated.trials.metric,
        replicated.event.seeds,
        len(pairs),
        sorted(techniques, key=lambda row: row.order),
        {label: mean_interval(values, noise) for label, values in scores.items()},
        [*replicated.event.notes, *replicated.describe_incomplete()],
    )


def _render(ablation: Ablation) -> str:
    recipes = [
        [label, format_score(ablation.metric, interval.mean, interval.half)]
        for label, interval in ablation.recipes.items()
    ]
    head = ("technique", "loss without it in the winner", "gain with it in the baseline", "value in the winner")
    method = METHOD.format(count=ablation.comparisons)
    mean = f"Mean of {len(ablation.seeds)} seeds ± half the interval."
    return render_page(
        f"{ablation.of}, the effect of each technique",
        [
            Section("", [*describe_proof(ablation), *ablation.notes], verdict=find_ablation_verdict(ablation)),
            Section("The effect of each technique", [method], [_worth_chart(ablation)], head, _list_rows(ablation)),
            Section("All recipes", [mean], (), ("recipe", ablation.metric), recipes),
        ],
    )


def find_ablation_verdict(ablation: Ablation) -> Verdict:
    """Return whether at least one technique is proven to help."""
    measured = [worth for _, _, worth in _list_worths(ablation)]
    if any(worth.proven and worth.interval.mean > 0 for worth in measured):
        return "proven"
    return "open" if measured else "none"


def describe_proof(ablation: Ablation) -> Iterator[str]:
    """Yield the finding: a sentence for the techniques that are proven to help, and one for those that harm."""
    proven = [row for row in _list_worths(ablation) if row[2].proven]
    for word, sign in (("help", 1), ("harm", -1)):
        texts = [
            f"{row.technique} by {format_gap(ablation.metric, worth.interval)} in the {place}"
            for row, place, worth in proven
            if sign * worth.interval.mean > 0
        ]
        if texts:
            yield f"Proven to {word}: {'; '.join(texts)}."
    if not proven:
        yield (
            f"No technique is proven to help or to harm on {plural(len(ablation.seeds), 'seed')}. More seeds make the "
            f"intervals narrower: sweep rm {ablation.sweep}, then sweep ablate {ablation.of} --seeds N."
        )


def _list_worths(ablation: Ablation) -> list[tuple[TechniqueWorth, str, Worth]]:
    return [
        (row, place, worth)
        for row in ablation.techniques
        for place, worth in ((WINNER, row.in_winner), (BASELINE, row.in_baseline))
        if worth is not None
    ]


def _worth_chart(ablation: Ablation) -> Chart:
    unit = unit_of(ablation.metric)
    rows = []
    for row, place, worth in _list_worths(ablation):
        name, group = f"{row.technique}, in the {place}", int(place == BASELINE)
        text = f"{name}\n{_format_worth(ablation.metric, worth)}\n{row.value}"
        rows.append(interval_row(name, group, worth.interval, unit, text))
    caption = "The effect of each technique with its 95 % interval: blue in the winner, orange in the baseline."
    label = "better with the technique" + (", in points" if unit != 1 else "")
    return interval_chart(caption, label, rows, 28, zero=True)


def _format_worth(metric: str, worth: Worth | None) -> str:
    if worth is None:
        return "not measured"
    reading = "proven" if worth.proven else "likely" if worth.likely else "open"
    return f"{format_gap(metric, worth.interval)}, {reading}"
