"""The figures of a sweep by name: `sweep.plot.effects()`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.effects.search_parameters import list_parameters
from analysis.report.figures.figure import Figure
from analysis.report.figures.sweep_data import collect_effects, collect_sweep
from training.errors import UserError

if TYPE_CHECKING:
    from analysis.reading.sweep_tables import Sweep

COSTS = ("seconds", "memory_mb", "ece")


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

        rows = collect_effects(measure_effects(fit_sweep(self.sweep)), self.sweep.metric, detail)
        return Figure("effects", f"Effects in {self.sweep.name}", collect_sweep(self.sweep), rows)

    def curves(self, by: str = "state", *, log: bool = False) -> Figure:
        """The best score so far of each trial over its epochs.

        Args:
            by: The groups: `state`, or a search parameter such as `unfreeze.level`.
            log: Draw the score on a log scale; for accuracies, the error.

        Raises:
            UserError: The space has no such search parameter.
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

        Raises:
            UserError: The space has no such search parameter.
        """
        self._check("over", over, COSTS)
        return Figure("scores", f"Scores of {self.sweep.name}", collect_sweep(self.sweep), settings={"over": over})

    def _check(self, argument: str, value: str, others: tuple[str, ...]) -> None:
        known = [*others, *(parameter.name for parameter in list_parameters(self.sweep.space.recipe))]
        if value not in known:
            raise UserError(f"{argument}={value!r}: this sweep has no such column. Choose one of: {', '.join(known)}.")
