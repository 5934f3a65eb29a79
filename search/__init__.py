"""Technique Search from Python: `run`, `resume`, `extend` and `open` return a `Result`."""

from search.api import Result, extend, open, resume, run

__all__ = ["Result", "extend", "open", "resume", "run"]
