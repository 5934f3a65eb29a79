"""What a person wants to know at the end of a sweep: the gain, the choices that brought it, and what to run next."""

from __future__ import annotations

from analysis.formatting import format_effect, plural
from search.core.record import SweepRecord
from search.core.trials import Trial
from search.display.significance import compare_with_baseline, judge
from training.errors import UserError

CHOICES = 3  # of the best trial, with the largest effects
QUICK = 200  # trials; reading more from MLflow and fitting their model takes longer than an end should


def describe_finding(record: SweepRecord, best: Trial) -> list[str]:
    """Return sentences about the best trial's lead, the effects of its choices, and the next command."""
    found = judge(record.trials)
    is_new = found is not None and found.lead != "baseline"
    is_readable = record.is_delivered and len(record.trials) <= QUICK
    choices = _describe_choices(record, best) if is_new and is_readable else []
    return [*compare_with_baseline(record.trials), *choices, _describe_next(record)]


def _describe_choices(record: SweepRecord, best: Trial) -> list[str]:
    from analysis.effects.technique_effects import CONFIDENCE, fit_sweep, measure_effects
    from analysis.reading.sweep_tables import load

    settings = record.settings
    try:
        fitted = fit_sweep(load(record.name, settings.tracking_uri, settings.experiment, metrics=()))
    except UserError:  # MLflow does not have the sweep; another line reports that
        return []
    effects = measure_effects(fitted, best.number)
    helpful = effects[effects.effect > 0].sort_values("effect", ascending=False).head(CHOICES)
    if helpful.empty:
        return []
    listed = " · ".join(
        f"{row.parameter}={row.level} {format_effect(record.trials.metric, row.effect, row.low, row.high)}"
        for row in helpful.itertuples()
    )
    trained = plural(len(fitted.design.scores), "full training")
    return [f"Effects of its choices, with {100 * CONFIDENCE:.0f} % intervals from {trained}: {listed}."]


def _describe_next(record: SweepRecord) -> str:
    name = record.name
    return f"Next: sweep report {name} shows all effects; sweep confirm {name} adds fresh seeds, then the test part."
