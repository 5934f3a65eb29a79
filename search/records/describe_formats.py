"""Write docs/formats.md, the fields of `--json` and `--csv`, from the types of the results."""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import fields
from typing import Any

from analysis.report.technique_cards import Card, Hyperparameter
from search.comparing.comparison import Comparison, CurvePoint, Difference, Effect, EffectPair, Side
from search.display.records import SweepTable, TrialRow
from search.display.tables.sweeps_table import RemoteRow, SweepRow
from search.followup.replications.findings import Ablation, Confirmation, ConfirmedRecipe, Soup, TechniqueWorth, Worth
from search.planning.sweep_plan import RecipeRow, SweepPlan
from search.records.data_rows import ClassRow, DataResult, FileRow, FilesResult, InputRow, SpeedRow
from search.records.replication_rows import ConfirmedRow, WorthRow
from search.records.report_rows import EffectRow, InteractionRow, ReportResult
from search.records.technique_rows import TechniqueRow

HEAD = """# Output for other programs

These commands print their result for other programs with `--json`, and those with rows also with `--csv`. Nothing else
is then on the standard output: messages and progress go to standard error. Numbers are not rounded. A number that is
not known is null in JSON and empty in CSV. The exit code is the same as without the option.

The names below do not change. A later version may add fields at the end. In CSV, a field that contains a mapping has a
column for each of its values, such as `recipe.optimizer.lr`. `make docs` writes this page from the types.

| Command | `--json` | `--csv` |
|---|---|---|
"""

# The command, what it prints as JSON, and the rows that it prints as CSV.
FORMATS: tuple[tuple[str, str, type | None], ...] = (
    ("sweep list", "a list of SweepRow", SweepRow),
    ("sweep list --tracking-uri URI", "a list of RemoteRow", RemoteRow),
    ("sweep show NAME", "SweepTable", TrialRow),
    ("sweep report NAME", "ReportResult", EffectRow),
    ("sweep confirm NAME", "Confirmation, as in `confirm.json`", ConfirmedRow),
    ("sweep ablate NAME", "Ablation, as in `ablate.json`", WorthRow),
    ("sweep soup NAME", "Soup", None),
    ("sweep compare A B", "Comparison", None),
    ("sweep plan SPACE", "SweepPlan", RecipeRow),
    ("sweep data SOURCE", "DataResult", ClassRow),
    ("sweep data SOURCE --check", "FilesResult", FileRow),
    ("sweep techniques", "a list of Card", TechniqueRow),
    ("sweep techniques NAME", "Card", TechniqueRow),
)
KINDS: tuple[type, ...] = (
    *(SweepRow, RemoteRow, SweepTable, TrialRow),
    *(ReportResult, EffectRow, InteractionRow),
    *(Confirmation, ConfirmedRecipe, ConfirmedRow),
    *(Ablation, TechniqueWorth, Worth, WorthRow),
    Soup,
    *(Comparison, Side, Difference, CurvePoint, EffectPair, Effect),
    *(SweepPlan, RecipeRow),
    *(DataResult, ClassRow, InputRow, SpeedRow, FilesResult, FileRow),
    *(Card, Hyperparameter, TechniqueRow),
)
NOTES = {
    Confirmation: "Its JSON begins with `format`, which is 1. An interval has `mean`, `low` and `high`.",
    Ablation: "Its JSON begins with `format`, which is 1.",
    Card: "A cost has `technique`, `model`, `values`, `time`, `memory` and `accuracy`, all relative to the baseline.",
}
_WORDS = {
    r"\bTestScored\b": "event `test` of the ledger",
    r"\bfloat\b": "number",
    r"\bint\b": "whole number",
    r"\bstr\b|\bPath\b|\bKind\b": "text",
    r"\bbool\b": "true or false",
    r"\bNone\b": "null",
    r"\bAny\b": "value",
    r"(?:list|Sequence)\[(.*)\]": r"list of \1",
    r"tuple\[([^,\]]+)(?:, (?:\.\.\.|\1))\]": r"list of \1",
    r"dict\[.*?, (.*)\]": r"mapping to \1",
    r" \| ": " or ",
}


def describe_formats() -> str:
    """Return docs/formats.md."""
    table = "".join(
        f"| `{command}` | {whole} | {f'rows of {rows.__name__}' if rows else '–'} |\n"
        for command, whole, rows in FORMATS
    )
    return HEAD + table + "".join(map(_describe, KINDS))


def _describe(kind: Any) -> str:
    text = " ".join([inspect.cleandoc(kind.__doc__).replace("\n\n", " "), NOTES.get(kind, "")]).strip()
    lines = [
        "",
        f"## {kind.__name__}",
        "",
        *textwrap.wrap(" ".join(text.split()), 118),
        "",
        "| Field | Type |",
        "|---|---|",
    ]
    lines += [f"| `{field.name}` | {_describe_type(str(field.type))} |" for field in fields(kind)]
    return "\n".join(lines) + "\n"


def _describe_type(annotation: str) -> str:
    for pattern, words in _WORDS.items():
        annotation = re.sub(pattern, words, annotation)
    return annotation
