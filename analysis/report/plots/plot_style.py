"""How every picture looks: no frame, one ink, colours that hold on light and on dark paper."""

from __future__ import annotations

import io
import re
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from training.score_metrics import MAXIMISED

INK = "#3f4652"  # becomes the page's own text colour in an SVG
BLUE, ORANGE, GREEN, RED, GREY = "#3b7fc4", "#dd8426", "#2b9a66", "#cf4f4f", "#8b93a1"
VERDICTS = {"useful": GREEN, "harmful": RED, "no effect seen": BLUE, "unknown": GREY}
STATES = {"completed": BLUE, "stopped": GREY, "diverged": RED, "failed": RED, "out_of_memory": ORANGE}
MANY = 200  # curves beyond which a picture of pixels is smaller than one of lines

STYLE: Any = {
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "figure.dpi": 110,
    "font.size": 9,
    "grid.alpha": 0.25,
    "grid.color": GREY,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1, **more: Any) -> tuple[Figure, Any]:
    """A figure of so many inches, and its axes."""
    with rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure.subplots(rows, columns, **more)


def finish(figure: Figure) -> Figure:
    """Clear paper, and one ink for every word."""
    figure.patch.set_alpha(0)
    for axes in figure.axes:
        axes.patch.set_alpha(0)
        axes.title.set_fontsize(10)
        if legend := axes.get_legend():
            legend.set_frame_on(False)
    for text in figure.findobj(Text):
        if text.get_color() == "black":
            text.set_color(INK)
    return figure


def to_svg(figure: Figure, name: str) -> str:
    """An `<svg>` element whose ink is the text colour of the page around it; `name` keeps its ids its own."""
    stream = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "font.family": "sans-serif"}):
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    # Text stays text, in the page's own face.
    text = re.sub(r"font: ([^;]*?)(\d+(?:\.\d+)?px)[^;\"]*", r"font: \1\2 system-ui, sans-serif", text)
    return re.sub(
        r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1), count=1
    )


def unit_of(metric: str) -> float:
    """What a score is multiplied by to be shown: accuracies are told in per cent."""
    return 100.0 if metric in MAXIMISED else 1.0


def label_of(metric: str) -> str:
    name = metric.removeprefix("val_").replace("_", " ")
    return f"validation {name}" + (" (%)" if metric in MAXIMISED else "")


def wrap_axes(axes: Any) -> list[Axes]:
    """One list of axes, whatever `subplots` gave."""
    return list(getattr(axes, "flat", [axes]))
