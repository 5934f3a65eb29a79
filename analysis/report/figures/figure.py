"""An interactive figure for a notebook or a file of its own; the page of the report draws the same figures."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from analysis.report.figures.sweep_data import EffectData, SweepData
from analysis.report.page import render_template
from training.errors import UserError

Kind = Literal["effects", "curves", "parallel", "scores"]
ROW = 24  # height of a level in the figure of effects, in pixels


@dataclass(frozen=True)
class Figure:
    """A figure that Apache ECharts draws; a notebook shows it without a network.

    `settings` are the first values of the figure's controls, such as the group of the curves.
    """

    kind: Kind
    title: str
    sweep: SweepData = field(repr=False)
    effects: Sequence[EffectData] = field(default=(), repr=False)
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def height(self) -> int:
        """The height in a notebook, in pixels; it has room for the controls."""
        return 90 + ROW * max(4, len(self.effects)) if self.kind == "effects" else 480

    def to_html(self) -> str:
        """A complete page with this figure; it needs no other file."""
        return render_template("figure.html.j2", title=self.title, figure=self, data=to_json(self.sweep, self.effects))

    def save(self, path: str | Path) -> Path:
        """Write the page, and return its path.

        Raises:
            UserError: The file cannot be written.
        """
        try:
            Path(path).write_text(self.to_html(), encoding="utf-8")
        except OSError as error:
            raise UserError(f"path={path}: {error.strerror}. Name a file that can be written.") from None
        return Path(path)

    def _repr_html_(self) -> str:
        # A frame keeps the page's scripts and style apart from those of the notebook.
        return (
            f'<iframe title="{html.escape(self.title)}" srcdoc="{html.escape(self.to_html())}" '
            f'style="width:100%;height:{self.height + 60}px;border:0"></iframe>'
        )


def to_json(sweep: SweepData, effects: Sequence[EffectData] = ()) -> dict[str, Any]:
    """The data of a page's figures as plain values."""
    return asdict(sweep) | {"effects": [asdict(row) for row in effects]}
