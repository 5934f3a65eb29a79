"""The analysis of sweeps: `load` reads a sweep's tables from its ledger, and `compare` puts several side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analysis.comparing import compare as compare
    from analysis.loading import load as load


def __getattr__(name: str) -> object:
    # Imported on first use, because pandas takes a second.
    if name == "load":
        from analysis.loading import load

        return load
    if name == "compare":
        from analysis.comparing import compare

        return compare
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
