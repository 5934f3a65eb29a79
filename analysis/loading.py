"""`analysis.load`: a sweep's tables, with its figures, for notebooks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ledger.folder import open_folder
from ledger.record import SweepRecord
from ledger.tables import Sweep, make_tables

if TYPE_CHECKING:
    from analysis.report.interactive_figures import Plots


class LoadedSweep(Sweep):
    """A sweep's tables, with its figures."""

    @property
    def plot(self) -> Plots:
        """The interactive figures of the report: `sweep.plot.effects()`, `curves`, `parallel` and `scores`."""
        from analysis.report.interactive_figures import Plots

        return Plots(self)


def load(name: str, tracking_uri: str | None = None, storage: str | Path = "sweeps") -> LoadedSweep:
    """Read a sweep from its ledger, in its folder or in MLflow.

    Args:
        name: The name of the sweep.
        tracking_uri: An MLflow store to read the ledger from, where this machine does not have the sweep's folder. The
            latest sweep with this name is taken, and its ledger may be half a minute old.
        storage: The folder that holds the sweeps.
    """
    if tracking_uri is None:
        record = SweepRecord.open(open_folder(Path(storage).absolute(), name), only_shown=True)
    else:
        from analysis.reading.remote import fetch_record

        record = fetch_record(tracking_uri, name)
    return LoadedSweep(**vars(make_tables(record)))
