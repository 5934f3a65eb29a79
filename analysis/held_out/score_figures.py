"""Pictures of a test score: confusion matrix, reliability diagram (DeGroot and Fienberg 1983), worst errors."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.colors import LinearSegmentedColormap

from analysis.held_out.scoring import Bin, WorstError
from analysis.report.plots.plot_style import BLUE, GREY, ORANGE, new_figure, to_png
from training.data.files.images import ImagePart
from training.data.inspection.picture import draw_sheet
from training.data.pipelines.datasets import EvalImages
from training.recipe import Recipe

NAMED = 30  # With more classes, their names and numbers do not fit into the picture.
SHARES = LinearSegmentedColormap.from_list("shares", ["#ffffff", BLUE])


def draw_confusion(confusion: Sequence[Sequence[int]], classes: Sequence[str]) -> bytes:
    """The confusion matrix as a PNG. A row is a true class; the colour is the share of its images."""
    table = np.asarray(confusion, dtype=float)
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    side = min(9.0, 2.5 + 0.42 * len(classes))
    figure, axes = new_figure(side, side)
    axes.grid(visible=False)
    axes.imshow(shares, cmap=SHARES, vmin=0, vmax=1)
    axes.set(xlabel="predicted", ylabel="true")
    if len(classes) <= NAMED:
        places = range(len(classes))
        axes.set_xticks(places, classes, rotation=90)
        axes.set_yticks(places, classes)
        for row, column in zip(*np.nonzero(table), strict=True):
            axes.text(column, row, f"{table[row, column]:.0f}", ha="center", va="center", color="black", fontsize=8)
    return to_png(figure)


def draw_reliability(bins: Mapping[str, Sequence[Bin]]) -> bytes:
    """A PNG of accuracy over confidence, before and after temperature scaling.

    The area of a mark shows its bin's share of the images.
    """
    figure, axes = new_figure(5, 4.6)
    axes.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1, label="perfect")
    for name, colour in (("before", ORANGE), ("after", BLUE)):
        x, y, share = zip(*((b["confidence"], b["accuracy"], b["share"]) for b in bins[name]), strict=True)
        label = "without scaling" if name == "before" else "with temperature scaling"
        axes.plot(x, y, color=colour, linewidth=1)
        axes.scatter(x, y, s=[12 + 300 * s for s in share], color=colour, alpha=0.6, label=label)
    axes.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1.02), ylim=(-0.02, 1.02))
    axes.legend(frameon=False, markerscale=0.6)
    return to_png(figure)


def draw_worst(part: ImagePart, worst: Sequence[WorstError], classes: Sequence[str], recipe: Recipe) -> bytes:
    """A PNG of the worst errors: the images as the model saw them, with the predicted and the true class."""
    dataset = EvalImages(part.select(np.array([error["position"] for error in worst])), recipe.evaluation_preprocessing)
    images, _ = dataset.__getitems__(range(len(worst)))
    captions = [f"{classes[e['predicted']]} {e['probability']:.0%}\nnot {classes[e['label']]}" for e in worst]
    stream = io.BytesIO()
    draw_sheet(images, captions, recipe.evaluation_preprocessing).save(stream, "PNG")
    return stream.getvalue()
