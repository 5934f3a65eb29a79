"""Write docs/ledger.md, the format of the ledger, from the types of the events."""

from __future__ import annotations

from typing import Any, get_args

from search.storage.events import AnyEvent

HEAD = """# The ledger

`sweeps/NAME/ledger.jsonl` has all events of a sweep: one JSON object per line, in UTF-8. Lines are appended and never
changed. The first line is `{"time": …, "format": 1}`. Each other line is an event; its field `event` names the kind. A
line is valid only with its newline at the end: the next driver removes an incomplete last line.

An earlier version ignores the fields that a later one adds, and a later version has defaults for them, so each can read
the ledgers of the other as long as the format is 1. `time` is in seconds since 1970 (UTC). Trials are numbered from 0;
the trial's folder, its run in MLflow and `--trial` use the same number.

To read a ledger from Python, use `SweepRecord.open(SweepFolder(path))` in `search.core.record`. `make docs` writes the
tables below from the types in `search/storage/events.py`.
"""


def describe_ledger() -> str:
    """Return docs/ledger.md."""
    union = get_args(AnyEvent)[0]
    return HEAD + "".join(_describe(kind) for kind in get_args(union))


def _describe(kind: Any) -> str:
    name = kind.model_fields["event"].default
    schema = kind.model_json_schema()
    lines = [f"\n## `{name}`", "", str(kind.__doc__), "", "| Field | Type | Meaning |", "|---|---|---|"]
    for field, values in schema["properties"].items():
        if field in ("event", "time"):
            continue
        lines.append(f"| `{field}` | {_type_of(values)} | {values.get('description', '')} |")
    return "\n".join(lines if len(lines) > 6 else lines[:3]) + "\n"


def _type_of(values: dict[str, Any]) -> str:
    if "anyOf" in values:
        return " or ".join(dict.fromkeys(_type_of(option) for option in values["anyOf"]))
    if "enum" in values:
        return ", ".join(f"`{value}`" for value in values["enum"])
    if "$ref" in values:
        return {"Recipe": "recipe", "Settings": "settings"}.get(name := values["$ref"].rpartition("/")[2], name)
    if values.get("type") == "array":
        return f"list of {_type_of(values['items'])}" if "items" in values else "list"
    return {"object": "mapping", "number": "number", "integer": "integer", "string": "text", "null": "null"}.get(
        values.get("type", ""), "any"
    )
