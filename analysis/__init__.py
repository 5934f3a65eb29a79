"""The analysis of sweeps: `load` reads a sweep's tables from its ledger, and `compare` puts several side by side."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analysis.comparing import compare as compare
    from analysis.loading import load as load


_HOMES = {"load": "analysis.loading", "compare": "analysis.comparing"}


def __getattr__(name: str) -> object:
    # Imported on first use, because pandas takes a second.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
