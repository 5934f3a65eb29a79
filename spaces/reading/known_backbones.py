"""Checks that the libraries have a space's backbones. They are imported, which takes seconds, only in doubt."""

from __future__ import annotations

import re
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from spaces.parameters.domains import Tree
from spaces.parameters.draws import count, draw, draw_every
from training.contract.own_parts import list_own
from training.contract.specs import Backbone
from training.recipe import read_recipe

_MOST = 1000  # With more combinations of backbones, a trial reports a wrong one.


def check_backbones(recipe: dict[str, Tree]) -> None:
    """Refuse a backbone that its library does not have."""
    part = {"backbone": recipe["backbone"]} if "backbone" in recipe else {}
    if count(part) > _MOST:
        return
    drawn = (read_recipe(cast(dict[str, Tree], values)) for _, values in draw_every(partial(draw, part)))
    for backbone in dict.fromkeys(each.backbone for each in drawn):
        if not _is_defined(backbone):
            from training.model.backbones import check_backbone

            check_backbone(backbone)


def _is_defined(backbone: Backbone) -> bool:
    """Whether the name is found in timm's source. If not, it may still be a backbone: timm itself must be asked."""
    if backbone.source == "own":
        return backbone.name in list_own("backbone")
    package = find_spec("timm") if backbone.source == "timm" else None  # find_spec does not import the package
    if package is None or package.origin is None:
        return False
    architecture, _, tag = backbone.name.partition(".")
    function = re.compile(rf"@register_model\ndef {re.escape(architecture)}\(")
    for file in sorted((Path(package.origin).parent / "models").glob("*.py")):
        text = file.read_text(encoding="utf-8")
        if function.search(text):
            return not tag or f"'{backbone.name}'" in text
    return False
