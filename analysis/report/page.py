"""A page of results that needs nothing beside itself: sentences, tables and pictures in one HTML file."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field

TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{ title }}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { text-align: left; padding: .3rem .9rem .3rem 0; border-bottom: 1px solid #ddd; vertical-align: top; }
td:first-child { white-space: nowrap; }
.wide { overflow-x: auto; } img { max-width: 100%; } figure { margin: 1rem 0; } figcaption { color: #666; }
</style></head><body>
<h1>{{ title }}</h1>
{% for section in sections %}
{% if section.title %}<h2>{{ section.title }}</h2>{% endif %}
{% for sentence in section.text %}<p>{{ sentence }}</p>
{% endfor %}
{% if section.rows %}<div class="wide"><table>
<thead><tr>{% for cell in section.head %}<th>{{ cell }}</th>{% endfor %}</tr></thead>
<tbody>{% for row in section.rows %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</tbody></table></div>{% endif %}
{% for caption, png in section.pictures %}<figure><img alt="{{ caption }}" src="data:image/png;base64,{{ png }}">
<figcaption>{{ caption }}</figcaption></figure>
{% endfor %}
{% endfor %}
</body></html>
"""


@dataclass(frozen=True)
class Section:
    """Sentences, then a table, then pictures; each may be missing. `pictures` are captions with PNG bytes."""

    title: str = ""
    text: Sequence[str] = ()
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    pictures: Sequence[tuple[str, bytes]] = field(default=(), repr=False)


def render_page(title: str, sections: Sequence[Section]) -> str:
    """The HTML text; everything in it is escaped."""
    from jinja2 import Environment

    drawn = [
        {**vars(s), "pictures": [(caption, base64.b64encode(png).decode()) for caption, png in s.pictures]}
        for s in sections
    ]
    return Environment(autoescape=True, trim_blocks=True).from_string(TEMPLATE).render(title=title, sections=drawn)
