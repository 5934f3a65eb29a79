"""The report of a sweep: the effects of its techniques, warnings, costs, and how the sweep went."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from analysis import EXPERIMENT, TRACKING_URI
from analysis.effects.importance import measure_importance
from analysis.effects.search_parameters import encode, list_parameters
from analysis.effects.selection import judge_best
from analysis.effects.technique_effects import fit_sweep, measure_effects, measure_interactions
from analysis.formatting import format_effect, format_points, format_score, format_seconds, plural
from analysis.reading.sweep_tables import Sweep, load
from analysis.report.cautions import list_candidates, list_cautions
from analysis.report.figures.figure import to_json
from analysis.report.figures.sweep_data import EffectData, collect_effects, collect_sweep
from analysis.report.page import render_template
from analysis.report.plan import compare_with_plan
from analysis.report.plots.cost_plots import plot_costs, plot_equal_time
from analysis.report.plots.curve_plots import plot_curves, plot_parallel, plot_progress, plot_timeline
from analysis.report.plots.effect_plots import plot_effects, plot_importance, plot_isolation
from analysis.report.plots.plot_style import to_svg
from analysis.report.plots.rate_plots import plot_winner_rates
from analysis.report.probe import describe_probe
from analysis.report.score_costs import Savings, compare_at_equal_time, measure_savings
from analysis.report.significance import describe_lead, describe_ties
from training.errors import UserError

LEADERS = 20
PAIRS = 8
WORDS = ("useful", "harmful", "no effect seen", "unknown")
KNOWN = WORDS[:2]
LIVE_PLOTS = ("costs", "equal_time", "progress", "timeline", "detail", "importance")


@dataclass(frozen=True)
class Findings:
    """Everything that a report shows, computed once."""

    sweep: Sweep
    effects: pd.DataFrame
    interactions: pd.DataFrame
    importance: pd.Series
    cautions: list[str]
    savings: Savings
    equal_time: pd.DataFrame


@dataclass(frozen=True)
class Winner:
    """The best trial: a sentence with its score, and the fields in which it differs from the best baseline."""

    trial: int
    sentence: str
    changes: list[str]


@dataclass(frozen=True)
class EffectRow:
    """One row of the page's table of effects, as text."""

    name: str
    verdict: str
    effect: str
    full: str
    trials: int
    best: str
    best_off: str


def find(sweep: Sweep) -> Findings:
    """Compute the findings of a sweep.

    Raises:
        UserError: No trial completed, or the space has no search parameters.
    """
    if not list_parameters(sweep.space.recipe):
        raise UserError(
            f"{sweep.name}: its space has no search parameters, so its trials do not differ in anything searched."
        )
    if not len(sweep.completed):
        raise UserError(
            f"{sweep.name}: none of its {len(sweep.trials)} trials has completed, so there is nothing to compare. "
            f"Wait for it, or continue with: sweep resume {sweep.name}."
        )
    fitted = fit_sweep(sweep)
    effects = measure_effects(fitted)
    return Findings(
        sweep,
        effects,
        measure_interactions(fitted),
        measure_importance(sweep),
        list_cautions(sweep, effects),
        measure_savings(sweep),
        compare_at_equal_time(sweep),
    )


def write_report(name: str, out: Path, tracking_uri: str = TRACKING_URI, experiment: str = EXPERIMENT) -> Findings:
    """Load a sweep and write its report as one self-contained HTML file.

    Args:
        name: The sweep.
        out: The file to write.
        tracking_uri: The MLflow store that holds the sweep.
        experiment: Its experiment there.

    Raises:
        UserError: There is no such sweep, none of its trials completed, or the file cannot be written.
    """
    findings = find(load(name, tracking_uri, experiment))
    page = render_report(findings)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(page)
    except OSError as error:
        raise UserError(f"--out={out}: {error.strerror}. Name a file that can be written.") from None
    return findings


def describe_effects(findings: Findings) -> Iterator[str]:
    """One sentence for the useful levels, and one for the harmful ones."""
    metric, rows = findings.sweep.metric, findings.effects[~findings.effects.detail.astype(bool)]
    for word in KNOWN:
        found = order_effects(rows[rows.verdict == word])
        names = [
            f"{row.parameter}={row.level} {format_effect(metric, row.effect, row.low, row.high)}"
            for row in found.itertuples()
        ]
        if names:
            yield f"{word.capitalize()}: {', '.join(names)}."


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
    """What early stopping saved, and how the best trial compares with the baseline at equal time."""
    saved = findings.savings
    share = 1 - saved.epochs / saved.epochs_full if saved.epochs_full else 0.0
    if saved.stopped:
        times = ""
        if saved.seconds_full > 0:
            times = f", about {format_seconds(saved.seconds_full - saved.seconds)} of training"
        yield (
            f"Stopping {plural(saved.stopped, 'trial')} early saved {share:.0%} of the epochs that full-length "
            f"training would have taken ({saved.epochs:,.0f} of {saved.epochs_full:,.0f} were run){times}."
        )
    yield from compare_with_plan(findings.sweep.figures, findings.sweep.trials.memory_mb.max())
    rows = findings.equal_time
    others, base = rows[~rows.is_baseline.astype(bool)], rows[rows.is_baseline.astype(bool)]
    if len(others) and len(base) and others.at_equal_time.notna().any():
        first, metric = others.iloc[0], findings.sweep.metric
        ahead = findings.sweep.sign * (first.at_equal_time - base.score.iloc[0])
        full = findings.sweep.sign * (first.score - base.score.iloc[0])
        yield (
            f"Trial {first.trial:04d} is {format_points(metric, abs(full))} {'ahead of' if full >= 0 else 'behind'} the best "
            f"baseline at full length, and {format_points(metric, abs(ahead))} {'ahead' if ahead >= 0 else 'behind'} "
            f"after the baseline's training time ({format_seconds(base.seconds.iloc[0])})."
        )


def describe_baseline(sweep: Sweep) -> str:
    """The trial that effects are measured from, with its choices; at least one trial must have completed."""
    ranked = pd.concat([sweep.completed[sweep.completed.is_baseline], sweep.completed])
    trial = int(ranked.trial.iloc[0])
    recipe, point = sweep.recipes.loc[trial], encode(list_parameters(sweep.space.recipe), sweep.recipes.loc[[trial]])
    choices = {
        parameter.name: recipe[parameter.name] if parameter.name in recipe else point[parameter.name].iloc[0]
        for parameter in list_parameters(sweep.space.recipe)
    }
    choices |= {"optimizer.lr": recipe["optimizer.lr"]}
    listed = ", ".join(f"{name}={_short(value)}" for name, value in choices.items())
    kind = "the best baseline" if bool(ranked.is_baseline.iloc[0]) else "the best trial, because no baseline completed"
    return f"Effects are relative to trial {trial:04d}, {kind}: {listed}."


def describe_headline(sweep: Sweep) -> str:
    """What the sweep found, in one sentence: how far the best trial is ahead of the baseline, or of the others."""
    found = judge_best(list_candidates(sweep))
    return describe_lead(sweep.metric, found) or describe_ties(sweep.metric, found)


def describe_winner(sweep: Sweep) -> Winner:
    """The best trial; at least one trial must have completed."""
    best = sweep.completed.iloc[0]
    score = format_score(sweep.metric, best.score, best.standard_error)
    base = sweep.completed[sweep.completed.is_baseline & (sweep.completed.trial != best.trial)]
    if not len(base):
        return Winner(int(best.trial), f"Trial {best.trial:04d} reached {score}.", [])
    own, other = sweep.recipes.loc[best.trial], sweep.recipes.loc[base.trial.iloc[0]]
    changes = [
        f"{name}: {_short(own[name])}" for name in own.index if not _is_missing(own[name]) and own[name] != other[name]
    ]
    return Winner(
        int(best.trial),
        f"Trial {best.trial:04d} reached {score}. Its recipe differs from baseline {base.trial.iloc[0]:04d} in:",
        changes,
    )


def render_report(findings: Findings) -> str:
    """The HTML text of the report; all text in it is escaped, and its pictures are inline SVG."""
    sweep = findings.sweep
    plots = _list_plots(findings)
    return render_template(
        "report.html.j2",
        **_describe(findings),
        notes=sweep.notes,
        facts=_facts(findings),
        leaders=list(_leader_rows(findings)),
        parameters=[parameter.name for parameter in list_parameters(sweep.space.recipe)],
        plots={key: to_svg(plot(), key) for key, plot in plots.items()},
        data=to_json(collect_sweep(sweep), list_known_effects(findings)),
    )


def render_live(findings: Findings) -> str:
    """The part of the report that the dashboard shows of a sweep that runs; its own figures show the rest."""
    plots = {key: plot for key, plot in _list_plots(findings).items() if key in LIVE_PLOTS}
    svgs = {key: to_svg(plot(), key) for key, plot in plots.items()}
    trials = int((findings.sweep.trials.state != "running").sum())
    return render_template("live_findings.html.j2", **_describe(findings), plots=svgs, trials=trials)


def list_known_effects(findings: Findings) -> list[EffectData]:
    """The rows of the interactive figure of effects."""
    return collect_effects(_known_effects(findings), findings.sweep.metric)


def _describe(findings: Findings) -> dict[str, object]:
    """The values of the templates `findings` and `course`."""
    sweep = findings.sweep
    headline = describe_headline(sweep)
    clear = clear_interactions(findings)
    unclear = findings.interactions.drop(clear.index)
    return {
        "title": sweep.name,
        "headline": headline,
        "winner": describe_winner(sweep),
        "baseline": describe_baseline(sweep),
        "gist": [
            *describe_effects(findings),
            *describe_interactions(findings),
            *describe_probe(sweep.metric, sweep.figures),
        ],
        "cautions": [sentence for sentence in findings.cautions if sentence != headline],
        "costs": list(describe_costs(findings)),
        "known": list(_effect_rows(sweep.metric, _known_effects(findings))),
        "open_effects": list(_effect_rows(sweep.metric, _shown_effects(findings, is_known=False))),
        "interactions": list(_interaction_rows(sweep.metric, clear)),
        "open_interactions": list(_interaction_rows(sweep.metric, unclear.head(PAIRS))),
        "equal_time": list(_equal_time_rows(findings)),
        "written": time.strftime("%Y-%m-%d %H:%M"),
    }


def _known_effects(findings: Findings) -> pd.DataFrame:
    return _shown_effects(findings, is_known=True)


def _shown_effects(findings: Findings, *, is_known: bool) -> pd.DataFrame:
    """The levels with a verdict that is known, or those without one, in the order of the page."""
    shown = findings.effects[~findings.effects.detail.astype(bool)]
    return order_effects(shown[shown.verdict.isin(KNOWN) == is_known])


def _list_plots(findings: Findings) -> dict[str, Callable[[], Figure]]:
    """The pictures that this sweep has, by name; each is drawn when it is called."""
    sweep, effects = findings.sweep, findings.effects
    plots: dict[str, Callable[[], Figure]] = {
        "effects": lambda: plot_effects(_known_effects(findings), sweep.metric),
        "isolation": lambda: plot_isolation(sweep),
        "costs": lambda: plot_costs(sweep),
        "equal_time": lambda: plot_equal_time(sweep),
        "curves": lambda: plot_curves(sweep),
        "progress": lambda: plot_progress({sweep.name: sweep}),
        "parallel": lambda: plot_parallel(sweep),
        "timeline": lambda: plot_timeline(sweep.trials),
    }
    if effects.detail.any():
        plots["detail"] = lambda: plot_effects(effects, sweep.metric, detail=True)
    if len(findings.importance):
        plots["importance"] = lambda: plot_importance(findings.importance)
    if len(best := sweep.completed) and sweep.curves[sweep.curves.trial == best.trial.iloc[0]]["lr"].notna().any():
        plots["rates"] = lambda: plot_winner_rates(sweep)
    return plots


def _facts(findings: Findings) -> list[tuple[str, str]]:
    """The facts at the top of the page: a number and its meaning."""
    sweep, best = findings.sweep, findings.sweep.completed.iloc[0]
    base = sweep.completed[sweep.completed.is_baseline]
    counts = sweep.trials.state.value_counts()
    facts = [(format_score(sweep.metric, best.score, best.standard_error), f"the best, trial {best.trial:04d}")]
    if len(base):
        facts.append((format_score(sweep.metric, base.score.iloc[0]), "the best baseline"))
    facts.append(
        (f"{len(sweep.trials):,}", "trials: " + ", ".join(f"{n} {s.replace('_', ' ')}" for s, n in counts.items()))
    )
    return [*facts, (format_seconds(findings.savings.seconds), "of training")]


def order_effects(effects: pd.DataFrame) -> pd.DataFrame:
    """The rows by verdict, in the order of `WORDS`; the largest effect of each verdict first."""
    by_size = effects.sort_values("effect", key=abs, ascending=False, kind="stable")
    return by_size.sort_values("verdict", key=lambda words: words.map(WORDS.index), kind="stable")


def _effect_rows(metric: str, effects: pd.DataFrame) -> Iterator[EffectRow]:
    for row in effects.itertuples():
        yield EffectRow(
            name=f"{row.parameter} = {row.level}",
            verdict=row.verdict,
            effect=format_effect(metric, row.effect, row.low, row.high),
            full=f"{row.full} / {row.full_off}",
            trials=row.trials,
            best=_score(metric, row.best),
            best_off=_score(metric, row.best_off),
        )


def _score(metric: str, score: float) -> str:
    return format_score(metric, None if pd.isna(score) else score)


def _interaction_rows(metric: str, interactions: pd.DataFrame) -> Iterator[tuple[str, str, str]]:
    for row in interactions.itertuples():
        yield row.one, row.other, format_effect(metric, row.effect, row.low, row.high)


def _equal_time_rows(findings: Findings) -> Iterator[tuple[str, ...]]:
    metric = findings.sweep.metric
    for row in findings.equal_time.itertuples():
        name = f"{row.trial:04d}" + (" (baseline)" if row.is_baseline else "")
        yield name, _score(metric, row.score), format_seconds(row.seconds), _score(metric, row.at_equal_time)


def _leader_rows(findings: Findings) -> Iterator[tuple[str, ...]]:
    sweep = findings.sweep
    for trial in sweep.completed.head(LEADERS).to_dict("records"):
        values = []
        for parameter in list_parameters(sweep.space.recipe):
            inside = {key: trial[key] for key in trial if key == parameter.name or key.startswith(f"{parameter.name}.")}
            values.append(", ".join(_short(value) for value in inside.values() if not _is_missing(value)))
        score = format_score(sweep.metric, trial["score"], trial["standard_error"])
        yield f"{trial['trial']:04d}", score, format_seconds(trial["seconds"]), *values


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and pd.isna(value))


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
