"""What two or more sweeps found, side by side: winners, what differs, curves at the rungs, effects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from analysis.effects.selection import error_of_difference
from analysis.formatting import format_points
from search.core.asha import make_asha
from search.core.record import SweepRecord
from search.core.trials import Trial
from training.errors import UserError
from training.recipe import flatten

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["data", "space", "search", "settings", "recipe"]
Z_95 = 1.96  # standard errors of a 95 % bound


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
    values: list[Any]


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
class Source:
    """A sweep, where it was read from, and the MLflow store that has its effects; None for that of its own settings."""

    record: SweepRecord
    store: str
    uri: str | None = None
    experiment: str | None = None


def compare(sources: Sequence[Source]) -> Comparison:
    """Compare sweeps; the effects are those that all of them measured."""
    records = [source.record for source in sources]
    best = [record.trials.best() for record in records]
    notes = list(_describe_scores(records, best))
    tables, problems = _measure_all(sources)
    return Comparison(
        [_describe(source, label) for source, label in zip(sources, _name(sources), strict=True)],
        list(_find_differences(records, best)),
        list(_sample_curves(records, best)),
        list(_pair_effects(tables)),
        [*notes, *problems],
    )


def _describe(source: Source, label: str) -> Side:
    record, best = source.record, source.record.trials.best()
    score, error = (best.score, best.standard_error) if best else (None, None)
    trials = record.trials
    return Side(
        label, source.store, record.state, trials.metric, len(trials), best.number if best else None, score, error
    )


def _name(sources: Sequence[Source]) -> list[str]:
    """Return the names of the sweeps, with a number where two have the same name."""
    names = [source.record.name for source in sources]
    return [
        name if names.count(name) == 1 else f"{name} ({names[: i + 1].count(name)})" for i, name in enumerate(names)
    ]


def _describe_scores(records: Sequence[SweepRecord], best: Sequence[Trial | None]) -> Iterator[str]:
    """Return a sentence about whether the scores can be compared, and what they say."""
    metrics = dict.fromkeys(record.trials.metric for record in records)
    digests = {(record.header.dataset or {}).get("digest") for record in records}
    if len(metrics) > 1:
        yield f"The sweeps rank by different metrics ({', '.join(metrics)}), so their scores cannot be compared."
    elif len(digests) > 1:
        yield "The sweeps have different images or splits, so a difference of scores may come from the data alone."
    elif None in digests:
        yield "The sweeps did not record an identity of their data, so a difference of scores may come from the data."
    for record, trial in zip(records, best, strict=True):
        if trial is None:
            yield f"{record.name} has no completed trial, so it has no best one."
    known = [(name, trial) for name, trial in zip((r.name for r in records), best, strict=True) if trial is not None]
    if len(metrics) > 1 or len(known) < 2:
        return
    sign = records[0].trials.sign
    (first, one), (second, other) = sorted(known, key=lambda pair: -sign * (pair[1].score or 0.0))[:2]
    gap = abs((one.score or 0.0) - (other.score or 0.0))
    bound = Z_95 * error_of_difference(one.standard_error, other.standard_error)
    lead = format_points(records[0].trials.metric, gap, bound)
    certain = "more" if gap > bound else "no more"
    yield (
        f"The best trial of {first} is {lead} ahead of that of {second}: {certain} than the noise of the validation "
        "images (95 %). Noise between seeds is not counted."
    )


def _find_differences(records: Sequence[SweepRecord], best: Sequence[Trial | None]) -> Iterator[Difference]:
    parts: dict[Kind, list[Mapping[str, Any]]] = {
        "data": [_describe_data(record) for record in records],
        "space": [_list_space(record) for record in records],
        "search": [flatten(record.space.search.model_dump(mode="json")) for record in records],
        "settings": [_list_settings(record) for record in records],
        "recipe": [_leave_out_data(trial.recipe.flat()) if trial else {} for trial in best],
    }
    for kind, sides in parts.items():
        for field in dict.fromkeys(name for side in sides for name in side):
            values = [side.get(field) for side in sides]
            if any(value != values[0] for value in values):
                yield Difference(kind, field, values)


def _describe_data(record: SweepRecord) -> dict[str, Any]:
    spec = record.space.baselines()[0].data
    return {**flatten(spec.model_dump(mode="json")), **(record.header.dataset or {})}


def _list_space(record: SweepRecord) -> dict[str, str]:
    """Return the domain or fixed value of each field that is not at its default."""
    rows = [row for row in record.space.rows() if row.technique != "data"]
    names = [f"{row.technique}.{row.hyperparameter}" if row.hyperparameter else row.technique for row in rows]
    return {
        f"{name} ({row.condition})" if row.condition else name: row.domain
        for name, row in zip(names, rows, strict=True)
    }


def _list_settings(record: SweepRecord) -> dict[str, Any]:
    return flatten(asdict(record.recorded_settings.masked()))


def _leave_out_data(flat: Mapping[str, Any]) -> dict[str, Any]:
    return {path: value for path, value in flat.items() if not path.startswith("data.")}


def _sample_curves(records: Sequence[SweepRecord], best: Sequence[Trial | None]) -> Iterator[CurvePoint]:
    """Return the scores of the best trials at the rungs of each sweep, and at their ends."""
    rungs: list[set[int]] = []
    for record, trial in zip(records, best, strict=True):
        asha = make_asha(record.space)
        rungs.append(set(asha.rung_epochs(trial.epochs)) if asha and trial else set())
    ends = {trial.epoch for trial in best if trial}
    for epoch in sorted(ends.union(*rungs)):
        yield CurvePoint(epoch, [_score_at(trial, epoch) for trial in best], [epoch in own for own in rungs])


def _score_at(trial: Trial | None, epoch: int) -> float | None:
    reports = trial.reports if trial else []
    return next((report.score for report in reports if report.epoch == epoch), None)


def _measure_all(sources: Sequence[Source]) -> tuple[list[pd.DataFrame], list[str]]:
    """Return the table of effects of each sweep; without tables, a sentence for each reason."""
    tables, problems = [], []
    for source in sources:
        try:
            tables.append(_measure(source))
        except UserError as error:
            problems.append(f"The effects of {source.record.name} are not known: {error}")
    return ([] if problems else tables), problems


def _measure(source: Source) -> pd.DataFrame:
    from analysis.effects.technique_effects import fit_sweep, measure_effects
    from analysis.reading.sweep_tables import load

    record = source.record
    if record.replication is not None:
        raise UserError(f"it is a replication of {record.replication.of}, with a fixed list of recipes.")
    uri, experiment = source.uri, source.experiment
    if uri is None or experiment is None:
        uri, experiment = record.settings.tracking_uri, record.settings.experiment
    table = measure_effects(fit_sweep(load(record.name, uri, experiment, metrics=())))
    return table[(table.verdict != "unknown") & ~table.detail.astype(bool)].set_index(["parameter", "level"])


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
