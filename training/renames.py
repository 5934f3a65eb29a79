"""Names of earlier versions. Recipes, spaces and ledgers that have them are read; nothing writes them any more."""

from __future__ import annotations

import re
from functools import reduce
from pathlib import Path
from typing import TypeVar, cast

T = TypeVar("T")

WEIGHTS, OLD_WEIGHTS = "model.safetensors", "weights.safetensors"  # of an export, and of one of an earlier version

FIELDS = {"sharpness": "sam", "head_rate": "head_lr", "schedule.decay_share": "cooldown_fraction"}
VALUES = {("augmentation.policy", "small_images"): "affine_colour"}
METRICS = {"feature_share": "cached_feature_fraction"}

_AROUND = ("recipe", "search", "baseline", "choice")  # keys of a space that are not part of a recipe's path
# Other parts are not searched.
_TOUCHED = {path.partition(".")[0] for path in (*FIELDS, *(field for field, _ in VALUES))}


def find_weights(export: Path) -> Path:
    """Return the file of weights in the folder of an export, which may be of an earlier version; it may not exist."""
    weights, old = export / WEIGHTS, export / OLD_WEIGHTS
    return old if old.exists() and not weights.exists() else weights


def current_steps(steps: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Return the steps to a value, such as `("recipe", "sharpness", "rho")`, with the names of this version."""
    path = ""
    current: list[str | int] = []
    for step in steps:
        inner = _join(path, step)
        current.append(step if inner == path else FIELDS.get(inner, step))
        path = inner
    return tuple(current)


def current_names(values: T, steps: tuple[str | int, ...] = ()) -> T:
    """Return plain values of a recipe or a space with the names of this version; `steps` lead to the values.

    A mapping that has the new name too keeps the old one, which is then refused as an unknown field.
    """
    return cast(T, _rename(values, reduce(_join, steps, "")))


def current_params(params: object) -> object:
    """Return the parameters of a draw, such as `{"sharpness[sam].rho": 0.1}`, with the names of this version.

    What is no mapping is returned as it is; pydantic refuses it.
    """
    if not isinstance(params, dict):
        return params
    renamed = {}
    for name, value in params.items():
        if re.split(r"[.\[]", name, maxsplit=1)[0] in _TOUCHED:
            name, value = _rename_param(name, value)
        renamed[name] = value
    return renamed


def _rename(values: object, path: str) -> object:
    if path and path.partition(".")[0] not in _TOUCHED:
        return values
    if isinstance(values, dict):
        renamed = {}
        for key, value in values.items():
            inner = _join(path, key)
            current = key if inner == path else FIELDS.get(inner, key)
            renamed[key if current in values else current] = _rename(value, inner)
        return renamed
    if isinstance(values, list):
        return [_rename(value, path) for value in values]
    return VALUES.get((path, values), values) if isinstance(values, str) else values


def _rename_param(name: str, value: object) -> tuple[str, object]:
    path = re.sub(r"\[.*?\]", "", name)
    for old, new in FIELDS.items():
        if f"{path}.".startswith(f"{old}."):
            name = re.sub(rf"\b{old.rpartition('.')[2]}\b", new, name, count=1)
    for (field, old), new in VALUES.items():
        owner = field.rpartition(".")[0]
        if f"{path}.".startswith(f"{owner}."):
            name = name.replace(f"[{old}]", f"[{new}]")
            value = new if (path, value) == (owner, old) else value
    return name, value


def _join(path: str, step: str | int) -> str:
    if isinstance(step, int) or step in _AROUND:
        return path
    return f"{path}.{step}" if path else step
