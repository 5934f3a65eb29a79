"""Whether a library has the backbones that a space asks for; importing it, which takes seconds, only in doubt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from spaces.parameters.draws import EveryTrial, count, draw
from training.contract.specs import Backbone
from training.recipe import read_recipe

_MOST = 1000  # combinations of backbones; of more, the trials say what is wrong


def check_backbones(recipe: dict[str, Any]) -> None:
    """Refuse a backbone that its library does not have.

    Raises:
        UserError: naming it, and the nearest names that there are.
    """
    for backbone in dict.fromkeys(_list_backbones(recipe)):
        if not _is_defined(backbone):
            from training.model.backbones import check_backbone

            check_backbone(backbone)


def _list_backbones(recipe: dict[str, Any]) -> Iterator[Backbone]:
    part = {"backbone": recipe["backbone"]} if "backbone" in recipe else {}
    if count(part) > _MOST:
        return
    every = EveryTrial()
    while True:
        yield read_recipe(draw(part, every)).backbone
        if not every.advance():
            return


def _is_defined(backbone: Backbone) -> bool:
    """Whether the name plainly stands in timm's source; where it does not, timm itself has to say."""
    package = find_spec("timm") if backbone.source == "timm" else None  # finds it without importing it
    if package is None or package.origin is None:
        return False
    architecture, _, tag = backbone.name.partition(".")
    function = re.compile(rf"@register_model\ndef {re.escape(architecture)}\(")
    for file in sorted((Path(package.origin).parent / "models").glob("*.py")):
        text = file.read_text(encoding="utf-8")
        if function.search(text):
            return not tag or f"'{backbone.name}'" in text
    return False
