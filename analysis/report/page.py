"""Self-contained HTML pages: one template engine and one style for every report."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from analysis.effects.seed_intervals import Interval

TEMPLATES = Path(__file__).parent / "templates"
ASSETS = Path(__file__).parent / "assets"  # our scripts, and Apache ECharts with its licence


# proven: on fresh seeds, the interval of the gain does not contain 0. likely: the same, estimated from the search itself.
# open: the interval contains 0. none: there is no gain, or nothing to compare.
Verdict = Literal["proven", "likely", "open", "none"]


@dataclass(frozen=True)
class Chart:
    """An interactive figure that sections.js draws from `data`."""

    kind: Literal["intervals", "confusion", "reliability"]
    caption: str
    data: dict[str, object] = field(repr=False)
    height: int = 340  # pixels


def interval_row(
    name: str, group: int, interval: Interval, unit: float, text: str, points: Sequence[tuple[float, str]] = ()
) -> dict[str, object]:
    """One row of a chart of intervals; `group` is its colour, and `text` is shown at the pointer, as are those of points."""
    ends = {"mean": unit * interval.mean, "low": unit * interval.low, "high": unit * interval.high}
    return {"name": name, "group": group, **ends, "text": text, "points": [[unit * x, about] for x, about in points]}


def interval_chart(
    caption: str, label: str, rows: Sequence[dict[str, object]], row_height: int, *, zero: bool
) -> Chart:
    """The chart of rows from `interval_row`; `zero` draws the line of no difference, and `row_height` is in pixels."""
    data, height = {"label": label, "zero": zero, "rows": rows}, 80 + row_height * max(2, len(rows))
    return Chart("intervals", caption, data, height)


@dataclass(frozen=True)
class Section:
    """Sentences, figures, a table and pictures, in this order; each can be missing. `pictures` are captions with PNG bytes.

    With a `verdict` it is the finding of the page, whose first sentence stands out.
    """

    title: str = ""
    text: Sequence[str] = ()
    charts: Sequence[Chart] = ()
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    pictures: Sequence[tuple[str, bytes]] = field(default=(), repr=False)
    verdict: Verdict | None = None


def list_charts(sections: Sequence[Section]) -> list[dict[str, object]]:
    """The data of the figures of sections, in the order in which the template numbers them."""
    return [chart.data for section in sections for chart in section.charts]


def render_page(title: str, sections: Sequence[Section]) -> str:
    """The HTML text of a page of sections; all text in it is escaped."""
    # The scripts of the report expect a sweep; this page has none.
    data = {"trials": {"trial": []}, "axes": [], "charts": list_charts(sections)}
    return render_template("sections.html.j2", title=title, sections=sections, data=data)


def read_sweep_id(page: Path) -> str | None:
    """Return the id of the sweep that a report is of; None if there is none, or it does not say."""
    try:
        with page.open(encoding="utf-8", errors="replace") as file:
            found = re.search(r'<meta name="sweep" content="(\w+)">', file.read(1000))
    except OSError:
        return None
    return found and found[1]


def render_template(name: str, **values: object) -> str:
    """The HTML text of one of the templates; all text is escaped unless the template marks it safe."""
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.globals["asset"] = lambda asset: (ASSETS / asset).read_text(encoding="utf-8")
    environment.filters["base64"] = lambda data: base64.b64encode(data).decode()
    environment.filters["json"] = lambda value: json.dumps(value, separators=(",", ":"), allow_nan=False)
    environment.filters["pack"] = lambda text: base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    return environment.get_template(name).render(**values)
