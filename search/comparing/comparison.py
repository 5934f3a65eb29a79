"""What two or more sweeps found, side by side: winners, what differs, curves at the rungs, effects."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from analysis.effects.intervals import NORMAL_95
from analysis.report.sentences import describe_lead
from ledger.events import Dataset
from ledger.folder import open_folder
from ledger.formatting import format_points, mask_secrets
from ledger.names import check_name
from ledger.record import SweepRecord
from ledger.trials import Trial
from search.core.asha import make_asha
from spaces.parameters.domains import format_value
from training.errors import UserError
from training.recipe import flatten

if TYPE_CHECKING:
    import pandas as pd

    from analysis.effects.lead import Lead

Kind = Literal["data", "space", "search", "settings", "recipe"]


@dataclass(frozen=True)
class Side:
    """A sweep of a comparison. `store` is the MLflow store that it was read from, or the folder of the sweep."""

    label: str
    store: str
    state: str
    metric: str
    trials: int
    best: int | None
    score: float | None
    standard_error: float | None


@dataclass(frozen=True)
class Difference:
    """A field that is not the same in all sweeps. `values` has one for each sweep; null where a sweep does not have it."""

    kind: Kind
    field: str
    values: list[object]


@dataclass(frozen=True)
class CurvePoint:
    """The score of each sweep's best trial after an epoch, and whether this epoch is a rung there."""

    epoch: int
    scores: list[float | None]
    is_rung: list[bool]


@dataclass(frozen=True)
class Effect:
    """An effect in one sweep, with its 90 % interval; positive is better."""

    effect: float
    low: float
    high: float
    verdict: str


@dataclass(frozen=True)
class EffectPair:
    """The effect of one option in each sweep."""

    parameter: str
    level: str
    effects: list[Effect]


@dataclass(frozen=True)
class Comparison:
    """Sweeps side by side; every list inside has the order of `sweeps`."""

    sweeps: list[Side]
    differences: list[Difference]
    curves: list[CurvePoint]
    effects: list[EffectPair]
    notes: list[str]


@dataclass(frozen=True)
class ComparedSweep:
    """A sweep, and where it was read from."""

    record: SweepRecord
    store: str


def read_sources(names: Sequence[str], storage: Path, uris: Sequence[str]) -> list[ComparedSweep]:
    """Read the sweeps from the storage folder; with stores, each from every store that has it."""
    if uris:
        sources = [source for name in names for source in _read_from_stores(check_name(name), uris)]
    else:
        records = [SweepRecord.open(open_folder(storage, name), only_shown=True) for name in names]
        sources = [ComparedSweep(record, str(record.folder.path)) for record in records]
    if len(sources) < 2:
        raise UserError(f"{names[0]}: a comparison needs two sweeps. Name another one, or another store with --from.")
    return sources


def _read_from_stores(name: str, uris: Sequence[str]) -> list[ComparedSweep]:
    from analysis.reading.remote import fetch_record, list_sweeps

    has_it = [uri for uri in uris if name in {sweep.name for sweep in list_sweeps(uri)}]
    # If no store has the sweep, reading it from the first one gives the error with the names that it has.
    return [ComparedSweep(fetch_record(uri, name), mask_secrets(uri)) for uri in has_it or uris[:1]]


def compare(sources: Sequence[ComparedSweep]) -> Comparison:
    """Compare sweeps; the effects are those that all of them measured."""
    records = [source.record for source in sources]
    best = [record.trials.best() for record in records]
    notes = list(_describe_scores(records, best))
    labels = _name(sources)
    tables, sentences = _measure_all(sources, labels)
    return Comparison(
        [_describe(source, label) for source, label in zip(sources, labels, strict=True)],
        list(_find_differences(records, best)),
        list(_sample_curves(records, best)),
        list(_pair_effects(tables)),
        [*notes, *sentences, *(f"{record.name}: {record.without_plugins}" for record in records if record.missing)],
    )


def _describe(source: ComparedSweep, label: str) -> Side:
    trials, best = source.record.trials, source.record.trials.best()
    number, score, error = (best.number, best.score, best.standard_error) if best else (None, None, None)
    return Side(label, source.store, source.record.state, trials.metric, len(trials), number, score, error)


def _name(sources: Sequence[ComparedSweep]) -> list[str]:
    """Return the names of the sweeps, with a number where two have the same name."""
    names = [source.record.name for source in sources]
    return [
        name if names.count(name) == 1 else f"{name} ({names[: i + 1].count(name)})" for i, name in enumerate(names)
    ]


def _describe_scores(records: Sequence[SweepRecord], best: Sequence[Trial | None]) -> Iterator[str]:
    """Return a sentence about whether the scores can be compared, and what they say."""
    metrics = dict.fromkeys(record.trials.metric for record in records)
    data = [record.header.dataset or {} for record in records]
    if len(metrics) > 1:
        yield f"The sweeps rank by different metrics ({', '.join(metrics)}), so their scores cannot be compared."
    elif {} in data:
        yield "Not all sweeps recorded an identity of their data, so a difference of scores may come from the data."
    elif not (_is_same(data, "digest") or _is_same(data, "content")):
        yield "The sweeps have different images or splits, so a difference of scores may come from the data alone."
    for record, trial in zip(records, best, strict=True):
        if trial is None:
            yield f"{record.name} has no completed trial, so it has no best one."
    known = [(record.name, trial) for record, trial in zip(records, best, strict=True) if trial is not None]
    if len(metrics) > 1 or len(known) < 2:
        return
    sign = records[0].trials.sign
    (first, leader), (second, runner_up) = sorted(known, key=lambda pair: -sign * (pair[1].score or 0.0))[:2]
    gap = abs((leader.score or 0.0) - (runner_up.score or 0.0))
    bound = NORMAL_95 * math.hypot(leader.standard_error, runner_up.standard_error)
    lead = format_points(records[0].trials.metric, gap, bound)
    certain = "more" if gap > bound else "no more"
    yield (
        f"The best trial of {first} is {lead} ahead of that of {second}: {certain} than the noise of the validation "
        "images (95 %). Noise between seeds is not counted."
    )


def _is_same(data: Sequence[Dataset], key: str) -> bool:
    """Return whether all data have this digest, and the same one. Copies of images have the same `content`."""
    return bool(data[0].get(key)) and len({part.get(key) for part in data}) == 1


def _find_differences(records: Sequence[SweepRecord], best: Sequence[Trial | None]) -> Iterator[Difference]:
    parts: dict[Kind, list[Mapping[str, object]]] = {
        "data": [
            {**flatten(record.space.baselines()[0].data.model_dump(mode="json")), **(record.header.dataset or {})}
            for record in records
        ],
        "space": [_list_space(record) for record in records],
        # The space has the trials that were planned; those of `sweep add` and `sweep extend` count too.
        "search": [
            {**flatten(record.space.search.model_dump(mode="json")), "trials": record.budget} for record in records
        ],
        "settings": [flatten(asdict(record.recorded_settings.masked())) for record in records],
        "recipe": [
            {path: value for path, value in trial.recipe.flat().items() if not path.startswith("data.")}
            if trial
            else {}
            for trial in best
        ],
    }
    for kind, sides in parts.items():
        for field in dict.fromkeys(name for side in sides for name in side):
            values = [side.get(field) for side in sides]
            if kind == "space":
                pairs = zip(values, records, strict=True)
                values = [_find_default(record, field) if value is None else value for value, record in pairs]
            if any(value != values[0] for value in values):
                yield Difference(kind, field, values)


def _list_space(record: SweepRecord) -> dict[str, str]:
    """Return the domain or fixed value of each field that is not at its default."""
    rows = [row for row in record.space.rows() if row.technique != "data"]
    return {f"{row.path} ({row.condition})" if row.condition else row.path: row.domain for row in rows}


def _find_default(record: SweepRecord, field: str) -> str | None:
    """Return the one value of a field that the space does not name; None if the space has no such field."""
    values = record.space.values_of(field)
    return format_value(*values) if len(values) == 1 else None


def _sample_curves(records: Sequence[SweepRecord], best: Sequence[Trial | None]) -> Iterator[CurvePoint]:
    """Return the scores of the best trials at the rungs of each sweep, and at their ends."""
    rungs: list[set[int]] = []
    for record, trial in zip(records, best, strict=True):
        asha = make_asha(record.space)
        rungs.append(set(asha.rung_epochs(trial.epochs)) if asha and trial else set())
    ends = {trial.epoch for trial in best if trial}
    for epoch in sorted(ends.union(*rungs)):
        yield CurvePoint(epoch, [_score_at(trial, epoch) for trial in best], [epoch in epochs for epochs in rungs])


def _score_at(trial: Trial | None, epoch: int) -> float | None:
    reports = trial.reports if trial else []
    return next((report.score for report in reports if report.epoch == epoch), None)


def _measure_all(sources: Sequence[ComparedSweep], labels: Sequence[str]) -> tuple[list[pd.DataFrame], list[str]]:
    """Return the table of effects of each sweep, and a sentence about each one's lead; no tables if one has none."""
    tables, sentences = [], []
    for source, label in zip(sources, labels, strict=True):
        try:
            table, lead = _measure(source)
        except UserError as error:
            sentences.append(f"The effects of {source.record.name} are not known: {error}")
            continue
        tables.append(table)
        if lead:
            sentences.append(f"{label}: {describe_lead(source.record.trials.metric, lead)}")
    return (tables if len(tables) == len(sources) else []), sentences


def _measure(source: ComparedSweep) -> tuple[pd.DataFrame, Lead | None]:
    from analysis.effects.lead import judge_lead
    from analysis.effects.technique_effects import NOT_ENOUGH, fit_sweep, measure_effects
    from ledger.tables import make_tables

    record = source.record
    if record.replication is not None:
        raise UserError(f"it is a replication of {record.replication.of}, with a fixed list of recipes.")
    tables = make_tables(record)
    if not len(tables.completed):
        raise UserError("no trial completed.")
    fitted = fit_sweep(tables)
    effects = measure_effects(fitted)
    known = effects[(effects.verdict != NOT_ENOUGH) & ~effects.detail.astype(bool)]
    return known.set_index(["parameter", "level"]), judge_lead(tables, fitted)


def _pair_effects(tables: Sequence[pd.DataFrame]) -> Iterator[EffectPair]:
    """Return the options whose effect is known in every sweep."""
    if not tables:
        return
    for key in tables[0].index:
        if all(key in table.index for table in tables):
            parameter, level = map(str, key)
            rows = [table.loc[key] for table in tables]
            effects = [Effect(float(row.effect), float(row.low), float(row.high), str(row.verdict)) for row in rows]
            yield EffectPair(parameter, level, effects)
