"""What a sweep's functions return: its trials, and what can be done with them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from analysis.report.figures.plots import Plots
    from analysis.report.sweep_report import Findings
    from search.core.record import SweepRecord
    from search.core.trials import Trial
    from search.followup.replications.findings import Ablation, Confirmation, Soup
    from search.runner.driver import SweepEnd


@dataclass(frozen=True)
class Result:
    """A sweep after its driver ended, or as `open` read it.

    Attributes:
        record: The content of its ledger.
        state: `completed`, `interrupted`, `time_budget`, or `running` under another driver.
        undelivered: Events that did not reach MLflow; `resume` sends them again.
        console: The methods print to it; a quiet console prints nothing.
    """

    record: SweepRecord
    state: str
    undelivered: int
    console: Console

    def __repr__(self) -> str:
        return f"Result({self.name!r}, {self.state}, {len(self.trials)} trials)"

    def _repr_html_(self) -> str:
        from search.display.result_html import describe_in_html

        return describe_in_html(self.record, self.state)

    @property
    def plot(self) -> Plots:
        """The interactive figures of the report: `effects()`, `curves()`, `parallel()` and `scores()`.

        Raises:
            UserError: MLflow does not have the sweep.
        """
        from analysis.reading.sweep_tables import load

        settings = self.record.settings
        return load(self.name, settings.tracking_uri, settings.experiment).plot

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

        Args:
            out: The folder to write. Default: `exports/NAME`.
            trial: The number of a trial. Default: the best trial.
            extras: `onnx=True`, `int8=True` or `register="model-name"`.

        Returns:
            The folder.

        Raises:
            UserError: there is no such trial, or the folder cannot be written.
        """
        from search.followup.trial_export import Extras, export_trial

        number = None if trial is None else f"{trial:04d}"
        exported = export_trial(self.record, number, None if out is None else Path(out), Extras(**extras))
        self.console.print(exported.sentence, markup=False)
        return exported.folder

    def report(self, out: str | Path | None = None) -> Path:
        """Write the page with the effect of each technique, and return its path, `reports/NAME.html` by default.

        Raises:
            UserError: MLflow does not have the sweep, or no trial completed.
        """
        settings, page = self.record.settings, choose_page(self.name, out)
        write_report(self.name, page, settings.tracking_uri, settings.experiment, self.console)
        return page

    def confirm(self, top: int | None = None, seeds: int | None = None, *, final: bool = False) -> Confirmation:
        """Train the best recipes and the baseline on fresh seeds, and score the winner once on the test part.

        Args:
            top: The number of best recipes. Default: 3.
            seeds: The number of fresh seeds of each recipe. Default: 5.
            final: Then train the winner on training and validation images, and export it.

        Raises:
            UserError: no trial completed, or the sweep is running.
            KeyboardInterrupt: it was interrupted; the same call continues it.
        """
        from search.followup.replications.confirmation import conclude_confirmation, run_confirmation
        from search.followup.replications.replication import check_searched, read_replication

        with library_signals():
            check_searched(self.record)
            replicated = read_replication(_whole(run_confirmation(self.record, top, seeds, self.console)), self.record)
            found = conclude_confirmation(replicated, self.console)
            if final:
                from search.followup.release import train_release

                train_release(replicated, self.console)
        return found

    def soup(self, out: str | Path | None = None) -> Soup:
        """Average the weights of the best trials, as long as validation gains, and export the mean.

        Args:
            out: The folder to write. Default: `exports/NAME-soup`.

        Raises:
            UserError: fewer than two trials have weights that can be averaged, or the sweep is running.
        """
        from search.followup.replications.replication import check_searched
        from search.followup.soup import cook_soup

        check_searched(self.record)
        return cook_soup(self.record, None if out is None else Path(out), self.console)

    def ablate(self, seeds: int | None = None) -> Ablation:
        """Train the winner without each of its techniques, and the baseline with it, on the same fresh seeds.

        Raises:
            UserError: no trial completed, or the sweep is running.
            KeyboardInterrupt: it was interrupted; the same call continues it.
        """
        from search.followup.replications.ablation import conclude_ablation, run_ablation
        from search.followup.replications.replication import check_searched, read_replication

        with library_signals():
            check_searched(self.record)
            replicated = read_replication(_whole(run_ablation(self.record, seeds, self.console)), self.record)
            return conclude_ablation(replicated, self.console)


def choose_page(name: str, out: str | Path | None) -> Path:
    """Return the file for a sweep's report, `reports/NAME.html` by default.

    Raises:
        UserError: the file cannot be written, or the name is not one of a sweep.
    """
    from analysis.export.writable import check_file
    from search.storage.names import check_name

    check_name(name)
    page = Path(out) if out is not None else Path("reports") / f"{name}.html"
    check_file("--out", page)
    return page


def write_report(name: str, page: Path, tracking_uri: str, experiment: str, console: Console) -> Findings:
    """Write a sweep's report from MLflow into `page`, and return what it shows.

    Raises:
        UserError: MLflow does not have the sweep, no trial completed, or the page cannot be written.
    """
    from analysis.reading.find_sweep import check_sweep

    check_sweep(tracking_uri, experiment, name)
    from search.followup.report import report_sweep

    return report_sweep(name, page, tracking_uri, experiment, console)


def _whole(end: SweepEnd) -> SweepRecord:
    """Return the record of a replication that ran to its end."""
    from search.runner.interrupt import Interrupted

    if end.state != "completed":
        raise Interrupted(signal.SIGINT, f"Continue with: sweep resume {end.record.name}")
    return end.record


def new_console() -> Console:
    """Return a console for the terminal or the notebook."""
    from search.display.tables.columns import make_console

    return make_console()


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
