"""`sweep ablate`: remove each technique from the winner, and add each to the baseline, on the same seeds."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from analysis.effects.intervals import mean_interval, paired_interval, score_noise
from analysis.formatting import format_points, format_score, plural, unit_of
from analysis.report.page import Chart, Section, interval_row, render_page
from search.core.record import SweepRecord
from search.display.tables.columns import Column, Columns
from search.followup.candidates import choose_baseline, find_winner
from search.followup.replications.findings import BASELINE, Ablation, TechniqueWorth, Worth
from search.followup.replications.replication import (
    SEEDS,
    Replicated,
    continue_replication,
    open_replication,
    run_replication,
)
from search.followup.replications.variants import WINNER, build_variants
from training.errors import UserError
from training.recipe import flatten

if TYPE_CHECKING:
    from rich.console import Console

    from search.runner.driver import SweepEnd

TECHNIQUES = [Column("technique"), Column("in the winner"), Column("in the baseline"), Column("value", rank=1)]
METHOD = (
    "Each difference is computed per seed (Student's t at 95 %, with the noise pooled over all recipes, as in randomized "
    "blocks). Among {count} comparisons about one in twenty would exclude 0 by luck alone, so a difference is called "
    "proven only if its interval still excludes 0 at 0.05 / {count} (Bonferroni). The effect of a technique depends on "
    "the others: the two columns may differ, and their sum is not the gain of the winner."
)


def run_ablation(source: SweepRecord, seeds: int | None, console: Console) -> SweepEnd:
    """Train the winner and the baseline with one technique switched at a time, or continue an existing ablation.

    Raises:
        UserError: nothing completed, too few seeds, or no technique to switch.
    """
    if (record := open_replication(source, "ablate", seeds)) is not None:
        return continue_replication(record, console)
    winner, baseline = find_winner(source), choose_baseline(source.trials, source.name)
    variants = build_variants(winner.recipe, baseline.recipe, source.name)
    console.print(
        f"{plural(len(variants.techniques), 'technique')} of trial {winner.name}: {plural(len(variants.recipes), 'recipe')}."
    )
    return run_replication(
        source,
        "ablate",
        variants.recipes,
        seed_count=seeds or SEEDS,
        keep_best=1,
        notes=[f"The winner is trial {winner.name} of {source.name}.", *variants.notes],
        console=console,
    )


def conclude_ablation(replicated: Replicated, console: Console) -> Ablation:
    """Print the effect of each technique, best first, then write and log the page.

    Raises:
        UserError: neither the winner nor the baseline completed on every seed.
    """
    from search.tracking.results import log_results

    folder, found = replicated.record.folder, measure_worth(replicated)
    results, page = folder.path / "ablate.json", folder.path / "ablate.html"
    results.write_text(json.dumps(found.to_json(), indent=2) + "\n")
    page.write_text(_render(found), encoding="utf-8")
    metric = found.metric
    sentences = [
        f"The effect of each technique on {metric}, on {len(found.seeds)} fresh seeds, with 95 % intervals:",
        *(
            f"  {row.technique} ({row.value}): {_format_worth(metric, row.in_winner)} in the winner, "
            f"{_format_worth(metric, row.in_baseline)} in the baseline"
            for row in found.techniques
        ),
        *found.notes,
    ]
    console.print(_show(found, sentences))
    console.print(f"The page: {page}", markup=False)
    metrics = {f"worth_{row.technique}": row.in_winner.interval.mean for row in found.techniques if row.in_winner}
    log_results(replicated.record, metrics, [page, results], sentences, time.time(), console)
    return found


def _show(found: Ablation, sentences: list[str]) -> RenderableType:
    """Return the sentences for the terminal, with the techniques as a table."""
    rows = [
        [
            row.technique,
            _format_worth(found.metric, row.in_winner),
            _format_worth(found.metric, row.in_baseline),
            row.value,
        ]
        for row in found.techniques
    ]
    table = Columns(TECHNIQUES, rows, whole=len(rows))
    return Group(Text(sentences[0]), Text(""), table, Text(""), *map(Text, found.notes))


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

    techniques = [
        TechniqueWorth(name, _describe_value(replicated, name), worth(f"without {name}"), worth(f"with {name}"))
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


def _describe_value(replicated: Replicated, field: str) -> str:
    """Return the winner's value of a field as text."""
    value = replicated.by_label[WINNER][0].recipe.values()[field]
    flat = flatten(value) if isinstance(value, dict) else {field: value}
    return ", ".join(
        f"{name}={item:.3g}" if isinstance(item, float) else f"{name}={item}" for name, item in flat.items()
    )


def _render(found: Ablation) -> str:
    metric = found.metric
    rows = [
        [row.technique, row.value, _format_worth(metric, row.in_winner), _format_worth(metric, row.in_baseline)]
        for row in found.techniques
    ]
    recipes = [[label, format_score(metric, interval.mean, interval.half)] for label, interval in found.recipes.items()]
    head = ("technique", "value in the winner", "loss without it in the winner", "gain with it in the baseline")
    return render_page(
        f"{found.of}, the effect of each technique",
        [
            Section("", [METHOD.format(count=found.comparisons), *found.notes]),
            Section("The effect of each technique", (), [_worth_chart(found)], head, rows),
            Section(
                "All recipes",
                [f"Mean of {len(found.seeds)} seeds ± half the interval."],
                (),
                ("recipe", metric),
                recipes,
            ),
        ],
    )


def _worth_chart(found: Ablation) -> Chart:
    unit = unit_of(found.metric)
    rows = [
        interval_row(
            f"{row.technique}, in the {place}",
            group,
            worth.interval,
            unit,
            f"{row.technique}, in the {place}\n{_format_worth(found.metric, worth)}\n{row.value}",
        )
        for row in found.techniques
        for group, (place, worth) in enumerate((("winner", row.in_winner), ("baseline", row.in_baseline)))
        if worth is not None
    ]
    caption = "The effect of each technique with its 95 % interval: blue in the winner, orange in the baseline."
    label = "better with the technique" + (", in points" if unit != 1 else "")
    return Chart("intervals", caption, {"label": label, "zero": True, "rows": rows}, height=80 + 28 * max(2, len(rows)))


def _format_worth(metric: str, worth: Worth | None) -> str:
    if worth is None:
        return "not measured"
    gap = worth.interval
    low, high = (format_points(metric, end).removesuffix(" points") for end in (gap.low, gap.high))
    reading = "proven" if worth.proven else "likely" if worth.likely else "open"
    return f"{format_points(metric, gap.mean)} ({low} to {high}), {reading}"
