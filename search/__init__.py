"""Technique Search from Python: `run`, `resume`, `extend` and `open` return a `Result`."""

from search.api import extend, open, resume, run
from search.result import Result

__all__ = ["Result", "extend", "open", "resume", "run"]
