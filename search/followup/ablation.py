"""`sweep ablate`: remove each technique from the winner, and add each to the baseline, on the same seeds."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import Any

from analysis.effects.intervals import Interval, mean_interval, paired_interval, score_noise
from analysis.report.formatting import format_points, format_score
from analysis.report.page import Section, render_page
from search.core.record import SweepRecord
from search.followup.candidates import choose_baseline, find_winner
from search.followup.replication import (
    BASELINE,
    Replicated,
    check_same,
    check_seeds,
    continue_replication,
    replication_folder,
    run_replication,
)
from search.followup.variants import WINNER, build_variants
from training.errors import UserError
from training.recipe import flatten

FORMAT = 1
SEEDS = 5
METHOD = (
    "Each difference is computed per seed (Student's t at 95 %, with the noise pooled over all recipes, as in randomized "
    "blocks). Among {count} comparisons about one in twenty would exclude 0 by luck alone, so a difference is called "
    "proven only if its interval still excludes 0 at 0.05 / {count} (Bonferroni). The effect of a technique depends on "
    "the others: the two columns may differ, and their sum is not the gain of the winner."
)


def run_ablation(source: SweepRecord, seeds: int | None, console: Any) -> tuple[str, SweepRecord]:
    """Train the winner and the baseline with one technique switched at a time, or continue an existing ablation.

    Returns:
        The final state of the ablation, and its record.

    Raises:
        UserError: nothing completed, too few seeds, or no technique to switch.
    """
    folder = replication_folder(source.folder, "ablate")
    if folder.ledger.exists():
        record = SweepRecord.open(folder)
        check_same(record, seeds)
        return continue_replication(record, console)
    check_seeds(SEEDS if seeds is None else seeds)
    winner, baseline = find_winner(source), choose_baseline(source.trials, source.name)
    variants = build_variants(winner.recipe, baseline.recipe)
    console.print(f"{len(variants.techniques)} techniques of trial {winner.name}: {len(variants.recipes)} recipes.")
    result = run_replication(
        source,
        "ablate",
        variants.recipes,
        seed_count=seeds or SEEDS,
        keep_best=1,
        notes=[f"The winner is trial {winner.name} of {source.name}.", *variants.notes],
        console=console,
    )
    return result.state, result.record


def conclude_ablation(listed: Replicated, console: Any) -> None:
    """Print the effect of each technique, best first, then write and log the page.

    Raises:
        UserError: neither the winner nor the baseline completed on every seed.
    """
    from search.tracking.results import log_results

    folder, findings = listed.record.folder, measure_worth(listed)
    (folder.path / "ablate.json").write_text(json.dumps(findings, indent=2) + "\n")
    page = folder.path / "ablate.html"
    page.write_text(_render(findings), encoding="utf-8")
    metric = findings["metric"]
    sentences = [
        f"The effect of each technique on {metric}, on {len(listed.event.seeds)} fresh seeds, with 95 % intervals:",
        *(
            f"  {found['technique']} ({found['value']}): {_format_worth(metric, found['in_winner'])} in the winner, "
            f"{_format_worth(metric, found['in_baseline'])} in the baseline"
            for found in findings["techniques"]
        ),
        *findings["notes"],
    ]
    for sentence in sentences:
        console.print(sentence, markup=False)
    console.print(f"The page: {page}", markup=False)
    metrics = {
        f"worth_{found['technique']}": found["in_winner"]["interval"]["mean"]
        for found in findings["techniques"]
        if found["in_winner"]
    }
    log_results(listed.record, metrics, [page, folder.path / "ablate.json"], sentences, time.time(), console)


def measure_worth(listed: Replicated) -> dict[str, Any]:
    """Return the effect of each technique in the winner and in the baseline, best first; positive is better."""
    scores, sign = listed.scores(), listed.trials.sign
    if not {WINNER, BASELINE} & scores.keys():
        raise UserError(
            f"{listed.record.name}: neither the winner nor the baseline completed on every seed. "
            + " ".join(listed.describe_incomplete())
        )
    pairs = {label: (WINNER, label) for label in scores if label.startswith("without ")}
    pairs |= {label: (label, BASELINE) for label in scores if label.startswith("with ")}
    pairs = {label: pair for label, pair in pairs.items() if set(pair) <= scores.keys()}
    signed = {label: [sign * score for score in values] for label, values in scores.items()}
    names = dict.fromkeys(label.partition(" ")[2] for label in listed.by_label if " " in label)

    def worth(label: str) -> dict[str, Any] | None:
        if label not in pairs:
            return None
        alone, together = paired_interval(signed, *pairs[label]), paired_interval(signed, *pairs[label], len(pairs))
        return {"interval": asdict(alone), "proven": together.excludes_zero, "likely": alone.excludes_zero}

    techniques = [
        {
            "technique": name,
            "value": _describe_value(listed, name),
            "in_winner": worth(f"without {name}"),
            "in_baseline": worth(f"with {name}"),
        }
        for name in names
    ]
    return {
        "format": FORMAT,
        "sweep": listed.record.name,
        "of": listed.event.of,
        "metric": listed.trials.metric,
        "seeds": list(listed.event.seeds),
        "comparisons": len(pairs),
        "techniques": sorted(techniques, key=_order),
        "recipes": {label: asdict(mean_interval(values, score_noise(scores))) for label, values in scores.items()},
        "notes": [*listed.event.notes, *listed.describe_incomplete()],
    }


def _order(found: dict[str, Any]) -> float:
    worth = found["in_winner"] or found["in_baseline"]
    return -worth["interval"]["mean"] if worth else float("inf")


def _describe_value(listed: Replicated, field: str) -> str:
    """Return the winner's value of a field as text."""
    value = listed.by_label[WINNER][0].recipe.model_dump()[field]
    flat = flatten(value) if isinstance(value, dict) else {field: value}
    return ", ".join(
        f"{name}={item:.3g}" if isinstance(item, float) else f"{name}={item}" for name, item in flat.items()
    )


def _render(findings: dict[str, Any]) -> str:
    metric = findings["metric"]
    rows = [
        [
            found["technique"],
            found["value"],
            *(_format_worth(metric, found[key]) for key in ("in_winner", "in_baseline")),
        ]
        for found in findings["techniques"]
    ]
    recipes = [
        [label, format_score(metric, interval["mean"], Interval(**interval).half)]
        for label, interval in findings["recipes"].items()
    ]
    head = ("technique", "value in the winner", "loss without it in the winner", "gain with it in the baseline")
    return render_page(
        f"{findings['of']}, the effect of each technique",
        [
            Section("", [METHOD.format(count=findings["comparisons"]), *findings["notes"]], head, rows),
            Section(
                "All recipes", [f"Mean of {len(findings['seeds'])} seeds ± half the interval."], ("", metric), recipes
            ),
        ],
    )


def _format_worth(metric: str, worth: dict[str, Any] | None) -> str:
    if worth is None:
        return "not measured"
    interval = worth["interval"]
    low, high = (format_points(metric, interval[end]).removesuffix(" points") for end in ("low", "high"))
    reading = "proven" if worth["proven"] else "likely" if worth["likely"] else "open"
    return f"{format_points(metric, interval['mean'])} ({low} to {high}), {reading}"
