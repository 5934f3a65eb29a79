"""What a sweep found: `load` gives its tables, and its best recipe is exported, ready to train again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.reading.sweep_tables import load as load

TRACKING_URI = "sqlite:///mlflow.db"
EXPERIMENT = "technique-search"


def __getattr__(name: str) -> Any:
    # Imported when it is asked for: the command needs the names above, and not pandas.
    if name == "load":
        from analysis.reading.sweep_tables import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
