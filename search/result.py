"""What a sweep's functions return: its trials, and what can be done with them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search.arguments import read_seconds

if TYPE_CHECKING:
    from rich.console import Console

    from analysis.report.interactive_figures import Plots
    from ledger.record import SweepRecord
    from ledger.trials import Trial
    from search.evaluation.replications.findings import Ablation, Confirmation
    from search.runner.machines.capacity import Capacity


SHOWN = 10  # trials in the table of a notebook


@dataclass
class Result:
    """A sweep after its driver ended, or as `open` read it.

    Attributes:
        record: The content of its ledger.
        state: `completed`, `interrupted`, `time_budget`, or `running` under another driver.
        undelivered: Events that did not reach MLflow; `resume` sends them again.
        console: The methods print to it; a quiet console prints nothing.
        store: The MLflow store that it was read from, if it is not that of its settings.
        seconds_left: What is left of a time budget for the last trainings, on all images but the test split.
        capacity: Where these may run; None if there are none.
        had_ended: Whether nothing was left to train, so that the model of the earlier end stays.
    """

    record: SweepRecord
    state: str
    undelivered: int
    console: Console
    store: str | None = None
    seconds_left: float | None = None
    capacity: Capacity | None = None
    had_ended: bool = False

    def __repr__(self) -> str:
        return f"Result({self.name!r}, {self.state}, {len(self.trials)} trials)"

    def _repr_html_(self) -> str:
        """Return the sweep's name, its state and a table of its best trials, for the output of a notebook's cell."""
        from ledger.formatting import format_score, plural
        from ledger.recipe_text import baseline_of, describe_recipe

        trials, baseline = self.record.trials, baseline_of(self.record.trials)
        rows = "".join(
            f"<tr><td>{trial.name}</td><td>{escape(trial.state)}</td>"
            f"<td>{format_score(trials.metric, trial.score, trial.standard_error)}</td>"
            f'<td style="text-align:left">{escape(describe_recipe(trial, baseline))}</td></tr>'
            for trial in trials.ranked()[:SHOWN]
        )
        return (
            f"<p><b>{escape(self.name)}</b>: {escape(self.state.replace('_', ' '))}, {plural(len(trials), 'trial')}</p>"
            f"<table><tr><th>trial</th><th>state</th><th>score</th><th>recipe</th></tr>{rows}</table>"
        )

    @property
    def plot(self) -> Plots:
        """The interactive figures of the report: `effects()`, `curves()`, `parallel()` and `scores()`."""
        from analysis.report.interactive_figures import Plots
        from ledger.tables import make_tables

        return Plots(make_tables(self.record))

    @property
    def name(self) -> str:
        """The sweep's name, as `sweep list` shows it."""
        return self.record.name

    @property
    def trials(self) -> list[Trial]:
        """All trials, in the order of their numbers."""
        return list(self.record.trials)

    @property
    def best(self) -> Trial | None:
        """The completed trial with the best score; None if no trial completed."""
        return self.record.trials.best()

    def export(self, out: str | Path | None = None, *, trial: int | None = None, **extras: Any) -> Path:
        """Write a trial's recipe, weights, summary and card.

        With a time budget, the first export of the best trial takes the time that was kept for it: the leaders train once
        more, on validation images too, and `exports/NAME` has the mean of their probabilities.

        Args:
            out: The folder to write. Default: `exports/NAME`.
            trial: The number of a trial. Default: the best trial.
            extras: `onnx=True`, `int8=True` or `register="model-name"`.

        Returns:
            The folder.
        """
        from search.evaluation.trial_export import Extras, export_trial

        if self.seconds_left and out is None and trial is None:
            with library_signals():
                folder = self.hand_back()
            if not extras:
                return folder
        number = None if trial is None else f"{trial:04d}"
        exported = export_trial(self.record, number, None if out is None else Path(out), Extras(**extras))
        self.console.print(exported.sentence, markup=False)
        return exported.folder

    def hand_back(self, headline: str | None = None) -> Path:
        """Export the best trial, then the mean of the last trainings if there is time; `headline` may be known already."""
        from search.display.sweep_display import SweepDisplay
        from search.evaluation.trial_export import export_trial, find_headline

        headline = headline or (find_headline(self.record, self.best) if self.best else None)
        goes_on = self.state != "interrupted" and not self.had_ended  # else the model of an earlier end stays
        exported = export_trial(self.record, None, None, headline=headline, replaces_last=goes_on)
        self.console.print(exported.sentence, markup=False)
        seconds, self.seconds_left = self.seconds_left, None
        if seconds and self.capacity and goes_on and (exported.folder / "model.safetensors").exists():
            from search.evaluation.last_trainings import train_ensemble

            line = SweepDisplay(self.console).line
            train_ensemble(self.record, self.capacity, seconds, exported.folder, line, headline)
        return exported.folder

    def report(self, out: str | Path | None = None) -> Path:
        """Write the page with the effect of each technique, and return its path, `reports/NAME.html` by default."""
        page = choose_page(self.name, out, self.record.header.id)
        from search.display.results import report_sweep

        report_sweep(self.record, page, self.console, self.store)
        return page

    def confirm(
        self,
        top: int | None = None,
        seeds: int | None = None,
        *,
        time_budget: str | float | None = None,
        final: bool = False,
    ) -> Confirmation:
        """Train the best recipes and the baseline on fresh seeds, and score the winner once on the test split.

        Args:
            top: The number of best recipes. Default: 3.
            seeds: The number of fresh seeds of each recipe. Default: 5.
            time_budget: Use fewer seeds, if the trainings are likely to take longer than this, such as `30m` or seconds.
            final: Then train the winner on training and validation images, and export it.

        Raises:
            KeyboardInterrupt: it was interrupted; the same call continues it.
        """
        from search.display.results import conclude_replication
        from search.display.sweep_display import SweepDisplay
        from search.evaluation.replications.confirmation import confirm, train_final
        from search.evaluation.replications.findings import Confirmation

        with library_signals():
            display = SweepDisplay(self.console)
            replicated = confirm(self.record, top, seeds, read_seconds(time_budget), display)
            confirmation = conclude_replication(replicated, self.console)
            assert isinstance(confirmation, Confirmation)
            if final:
                train_final(replicated, confirmation, display.line)
        return confirmation

    def ablate(self, seeds: int | None = None, *, time_budget: str | float | None = None) -> Ablation:
        """Train the winner without each of its techniques, and the baseline with it, on the same fresh seeds.

        The arguments are those of `confirm`.

        Raises:
            KeyboardInterrupt: it was interrupted; the same call continues it.
        """
        from search.display.results import conclude_replication
        from search.display.sweep_display import SweepDisplay
        from search.evaluation.replications.ablation import ablate
        from search.evaluation.replications.findings import Ablation

        with library_signals():
            replicated = ablate(self.record, seeds, read_seconds(time_budget), SweepDisplay(self.console))
            ablation = conclude_replication(replicated, self.console)
        assert isinstance(ablation, Ablation)
        return ablation


def choose_page(name: str, out: str | Path | None, sweep_id: str) -> Path:
    """Return the file for a sweep's report: by default `reports/NAME.html`, with a number where another sweep has it."""
    from analysis.report.page import read_sweep_id
    from ledger.names import own_place
    from training.process.writable import check_file

    page = own_place("reports", name, sweep_id, read_sweep_id, ".html") if out is None else Path(out)
    check_file("--out", page)
    return page


@contextmanager
def library_signals() -> Iterator[None]:
    """Give the caller its signal handlers back, and raise Python's own exception for Ctrl-C."""
    from search.runner.interrupt import NAMES, Interrupted

    before = {number: signal.getsignal(number) for number in NAMES}
    try:
        yield
    except Interrupted as end:
        raise KeyboardInterrupt(str(end)) from end
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)
