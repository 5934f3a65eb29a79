"""The analysis of sweeps: `load` reads a sweep's tables from MLflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analysis.reading.sweep_tables import load as load

TRACKING_URI = "sqlite:///mlflow.db"
EXPERIMENT = "technique-search"


def __getattr__(name: str) -> object:
    # Imported on first use, because the command needs the names above but not pandas.
    if name == "load":
        from analysis.reading.sweep_tables import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
