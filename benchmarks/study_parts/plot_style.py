"""The style of all pictures: no frame, one text colour, and colours that work on light and dark pages."""

from __future__ import annotations

from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.text import Text

INK = "#3f4652"
# The colours are those of charts.js.
BLUE, ORANGE, GREEN, RED, GREY = "#3b82c4", "#dd8426", "#2b9a66", "#cf4f4f", "#8b93a1"

STYLE: Any = {
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.dpi": 110,
    "font.size": 9,
    "grid.alpha": 0.25,
    "grid.color": GREY,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1, **more: Any) -> tuple[Figure, Any]:
    """A figure, with its width and height in inches, and its axes."""
    with rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure.subplots(rows, columns, **more)


def finish(figure: Figure) -> Figure:
    """Make the background transparent, and give all text the same colour."""
    figure.patch.set_alpha(0)
    for axes in figure.axes:
        axes.patch.set_alpha(0)
    for text in figure.findobj(Text):
        if text.get_color() == "black":
            text.set_color(INK)
    return figure
