"""The interactive figures of a sweep, for notebooks and the report: `sweep.plot.effects()`."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from analysis.effects.search_parameters import list_parameters
from analysis.report.page import render_template
from analysis.report.sweep_data import EffectData, SweepData, collect_effects, collect_sweep
from ledger.columns import list_columns
from training.errors import UserError
from training.process.writable import complete_file

if TYPE_CHECKING:
    from ledger.tables import Sweep

Kind = Literal["effects", "curves", "parallel", "scores", "course", "slices"]
ROW = 24  # height of a level in the figure of effects, in pixels


@dataclass(frozen=True, repr=False)
class Figure:
    """A figure that Apache ECharts draws; a notebook shows it without a network.

    `settings` are the first values of the figure's controls, such as the group of the curves.
    """

    kind: Kind
    title: str
    sweep: SweepData
    effects: Sequence[EffectData] = ()
    settings: dict[str, object] = field(default_factory=dict)

    @property
    def height(self) -> int:
        """The height in a notebook, in pixels; it has room for the controls."""
        if self.kind == "slices":
            return 100 + 170 * -(-len(self.sweep.slices) // 3)  # three beside each other
        return 90 + ROW * max(4, len(self.effects)) if self.kind == "effects" else 480

    def to_html(self) -> str:
        """A complete page with this figure; it needs no other file."""
        return render_template("figure.html.j2", title=self.title, figure=self, data=to_json(self.sweep, self.effects))

    def save(self, path: str | Path) -> Path:
        """Write the page, and return its path."""
        with complete_file("path", Path(path)) as complete:
            complete.write_text(self.to_html(), encoding="utf-8")
        return Path(path)

    def __repr__(self) -> str:
        return self.title  # what a notebook keeps beside the figure, and a terminal shows

    def _repr_html_(self) -> str:
        # A frame keeps the page's scripts and style apart from those of the notebook.
        return (
            f'<iframe title="{html.escape(self.title)}" srcdoc="{html.escape(self.to_html())}" '
            f'style="width:100%;height:{self.height + 60}px;border:0"></iframe>'
        )


def to_json(sweep: SweepData, effects: Sequence[EffectData] = ()) -> dict[str, object]:
    """The data of a page's figures as plain values; `asdict` would copy each value of each epoch."""
    axes = {name: [vars(axis) for axis in getattr(sweep, name)] for name in ("axes", "slices")}
    return vars(sweep) | axes | {"effects": [vars(row) for row in effects]}


@dataclass(frozen=True)
class Plots:
    """Interactive figures of one sweep, as in its report."""

    sweep: Sweep

    def effects(self, *, detail: bool = False) -> Figure:
        """The effect of each level against the baseline's choice, with its 90 % interval.

        Args:
            detail: Also show the thirds of the intervals inside options.
        """
        from analysis.effects.technique_effects import fit_sweep, measure_effects
        from analysis.report.findings import refuse_unfinished

        refuse_unfinished(self.sweep)
        rows = collect_effects(measure_effects(fit_sweep(self.sweep)), self.sweep.metric, detail)
        return Figure("effects", f"Effects in {self.sweep.name}", collect_sweep(self.sweep), rows)

    def curves(self, by: str = "state", *, log: bool = False) -> Figure:
        """The score of each trial over its epochs.

        Args:
            by: The groups: `state`, or a search parameter such as `unfreeze.level`.
            log: Draw the score on a log scale; for accuracies, the error.
        """
        self._check("by", by, ("state",))
        settings = {"by": by, "log": log}
        return Figure("curves", f"Curves of {self.sweep.name}", collect_sweep(self.sweep), settings=settings)

    def parallel(self) -> Figure:
        """Each trial as a line through its values and its score; drag along an axis to select trials."""
        return Figure("parallel", f"Recipes of {self.sweep.name}", collect_sweep(self.sweep))

    def scores(self, over: str = "seconds") -> Figure:
        """The score of each trial over a cost or a search parameter.

        Args:
            over: `seconds`, `memory_mb`, `ece`, or a search parameter such as `optimizer.lr`.
        """
        self._check("over", over, tuple(column.name for column in list_columns("pages") if column.title))
        return Figure("scores", f"Scores of {self.sweep.name}", collect_sweep(self.sweep), settings={"over": over})

    def course(self) -> Figure:
        """The best score of full length over the epochs that all trials have run."""
        return Figure("course", f"Course of {self.sweep.name}", collect_sweep(self.sweep))

    def slices(self) -> Figure:
        """The score of each trial of full length over its value of each search parameter."""
        return Figure("slices", f"Slices of {self.sweep.name}", collect_sweep(self.sweep))

    def _check(self, argument: str, value: str, others: tuple[str, ...]) -> None:
        known = [*others, *(parameter.name for parameter in list_parameters(self.sweep.space.recipe))]
        if value not in known:
            raise UserError(f"{argument}={value!r}: this sweep has no such column. Choose one of: {', '.join(known)}.")
