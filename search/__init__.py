"""Technique Search from Python: `run`, `resume`, `extend` and `open` return a `Result`."""

from search.api import check, extend, open, plan, resume, run
from search.result import Result

__all__ = ["Result", "check", "extend", "open", "plan", "resume", "run"]
