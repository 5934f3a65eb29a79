"""Self-contained HTML pages: one template engine and one style for every report."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

TEMPLATES = Path(__file__).parent / "templates"
ASSETS = Path(__file__).parent / "assets"  # our scripts, and Apache ECharts with its licence


@dataclass(frozen=True)
class Section:
    """Sentences, a table and pictures, in this order; each can be missing. `pictures` are captions with PNG bytes."""

    title: str = ""
    text: Sequence[str] = ()
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    pictures: Sequence[tuple[str, bytes]] = field(default=(), repr=False)


def render_page(title: str, sections: Sequence[Section]) -> str:
    """The HTML text of a page of sections; all text in it is escaped."""
    return render_template("sections.html.j2", title=title, sections=sections)


def render_template(name: str, **values: object) -> str:
    """The HTML text of one of the templates; all text is escaped unless the template marks it safe."""
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.globals["asset"] = lambda asset: (ASSETS / asset).read_text(encoding="utf-8")
    environment.filters["base64"] = lambda data: base64.b64encode(data).decode()
    environment.filters["json"] = lambda value: json.dumps(value, separators=(",", ":"), allow_nan=False)
    environment.filters["pack"] = lambda text: base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    return environment.get_template(name).render(**values)
