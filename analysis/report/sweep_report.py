"""The report of a sweep: the effects of its techniques, warnings, costs, and how the sweep went."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pandas as pd

from analysis.effects.search_parameters import list_parameters
from analysis.effects.technique_effects import NOT_ENOUGH
from analysis.report.choices import name_choice
from analysis.report.findings import (
    KNOWN,
    PAIRS,
    Findings,
    clear_interactions,
    describe_baseline,
    describe_costs,
    describe_effects,
    describe_interactions,
    describe_reach,
    describe_winner,
    order_effects,
)
from analysis.report.interactive_figures import to_json
from analysis.report.page import Section, Verdict, list_charts, render_template
from analysis.report.sentences import describe_lead, describe_state
from analysis.report.sweep_data import collect_effects, collect_sweep
from ledger.columns import TrialColumn, list_columns
from ledger.formatting import format_effect, format_score, format_seconds
from ledger.tables import Sweep

LEADERS = 20
VERDICTS: dict[str, Verdict] = {"clear": "likely", "open": "open"}


def render_report(findings: Findings, mistakes: Sequence[Section] = ()) -> str:
    """The HTML text of the report; all text in it is escaped.

    `mistakes` are sections about the predictions of the best trial.
    """
    return _render(findings.sweep, findings, mistakes, state=describe_state(findings.sweep))


def render_plain(sweep: Sweep, problem: str) -> str:
    """The HTML text of the report of a sweep that has no findings; `problem` says why."""
    return _render(sweep, None, problem=problem, state=describe_state(sweep))


def render_live(sweep: Sweep, findings: Findings | None, problem: str) -> str:
    """The HTML text of the report of a running sweep, for `put_live`; without findings `problem` says why."""
    return _render(sweep, findings, problem=problem, is_live=True)


def _render(sweep: Sweep, findings: Findings | None, mistakes: Sequence[Section] = (), **more: object) -> str:
    data, scored = collect_sweep(sweep), sweep.curves.score.notna()
    known = collect_effects(_list_levels(findings), sweep.metric) if findings else ()
    return render_template(
        "report.html.j2",
        **{"title": sweep.name, "sweep_id": sweep.id, "written": time.strftime("%Y-%m-%d %H:%M"), **more},
        **(_describe(findings) if findings else {}),
        leaders=list(_leader_rows(sweep)),
        listed=[column.title for column in _list_facts(sweep)],
        parameters=[parameter.name for parameter in list_parameters(sweep.space.recipe)],
        mistakes=mistakes,
        data=to_json(data, known) | {"charts": list_charts(mistakes)},
        is_scored=bool(scored.any()),
    )


def _describe(findings: Findings) -> dict[str, object]:
    sweep = findings.sweep
    clear = clear_interactions(findings)
    unclear = findings.interactions.drop(clear.index)
    unknown = _list_levels(findings, are_known=False)
    return {
        "facts": _facts(findings),
        "headline": describe_lead(sweep.metric, findings.lead),
        "verdict": VERDICTS.get(findings.lead.verdict, "none"),
        "winner": describe_winner(sweep),
        "baseline": describe_baseline(sweep),
        "gist": [*describe_effects(findings), *describe_reach(findings), *describe_interactions(findings)],
        "cautions": findings.cautions,
        "costs": list(describe_costs(findings)),
        "known": list(_effect_rows(sweep.metric, _list_levels(findings))),
        "inner_effects": list(_effect_rows(sweep.metric, findings.effects[findings.effects.detail.astype(bool)])),
        "open_effects": list(_effect_rows(sweep.metric, unknown[unknown.verdict != NOT_ENOUGH])),
        "untested": [f"{row.parameter} = {row.level}" for row in unknown[unknown.verdict == NOT_ENOUGH].itertuples()],
        "interactions": list(_interaction_rows(sweep.metric, clear)),
        "open_interactions": list(_interaction_rows(sweep.metric, unclear.head(PAIRS))),
    }


def _list_levels(findings: Findings, *, are_known: bool = True) -> pd.DataFrame:
    shown = findings.effects[~findings.effects.detail.astype(bool)]
    return order_effects(shown[shown.verdict.isin(KNOWN) == are_known])


def _facts(findings: Findings) -> list[tuple[str, str]]:
    sweep, best = findings.sweep, findings.sweep.completed.iloc[0]
    counts = sweep.trials.state.value_counts()
    facts = [(format_score(sweep.metric, best.score, best.standard_error), f"the best, trial {best.trial:04d}")]
    if len(sweep.baselines):
        facts.append((format_score(sweep.metric, sweep.baselines.score.iloc[0]), "the best baseline"))
    states = ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in counts.items())
    facts.append((f"{len(sweep.trials):,}", f"trials: {states}"))
    return [*facts, (format_seconds(findings.savings.seconds), "of training")]


def _effect_rows(metric: str, effects: pd.DataFrame) -> Iterator[dict[str, object]]:
    for row in effects.itertuples():
        yield {
            "name": f"{row.parameter} = {row.level}",
            "verdict": row.verdict,
            "effect": format_effect(metric, row.effect, row.low, row.high),
            "full": f"{row.full} / {row.full_off}",
            "trials": row.trials,
            "best": format_score(metric, row.best),
            "best_off": format_score(metric, row.best_off),
        }


def _interaction_rows(metric: str, interactions: pd.DataFrame) -> Iterator[tuple[str, str, str]]:
    for row in interactions.itertuples():
        yield row.one, row.other, format_effect(metric, row.effect, row.low, row.high)


def _list_facts(sweep: Sweep) -> list[TrialColumn]:
    return [column for column in list_columns("listed") if sweep.trials[column.name].notna().any()]


def _leader_rows(sweep: Sweep) -> Iterator[tuple[list[str], list[str]]]:
    columns = _list_facts(sweep)
    for trial in sweep.completed.head(LEADERS).to_dict("records"):
        values = [name_choice(parameter, trial) for parameter in list_parameters(sweep.space.recipe)]
        score = format_score(sweep.metric, trial["score"], trial["standard_error"])
        listed = ["–" if pd.isna(trial[it.name]) else it.text(trial[it.name]) for it in columns]
        yield [f"{trial['trial']:04d}", score, *listed], values
