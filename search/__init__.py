"""Technique Search from Python: `run`, `resume` and `open` return a `Result`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from search.api import check, open, resume, run
    from search.result import Result

__all__ = ["Result", "check", "open", "resume", "run"]


def __getattr__(name: str) -> Any:
    """Import a name at its first use, because the command handles Ctrl-C before it imports anything else."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from search import api, result

    return getattr(result if name == "Result" else api, name)
