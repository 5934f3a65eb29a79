"""A score on labelled images as the sections of a page, and its figures as text."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analysis.effects.seed_intervals import Interval
from analysis.report.page import Chart, Section
from ledger.formatting import format_score

if TYPE_CHECKING:
    import torch

    from analysis.held_out.scoring import WorstError
    from training.contract.specs import Preprocessing
    from training.data.files.images import ImagePart
    from training.recipe import Recipe

RECALL = ("class", "images", "recognised", "recall")


def render_score(
    title: str, text: Sequence[str], score: Mapping[str, Any], classes: Sequence[str], worst: bytes
) -> list[Section]:
    """Two sections: `text` with the calibration, and the classes with the worst errors, whose picture may be empty."""
    confusion = []
    if table := score["confusion"]:  # there is none with very many classes
        caption = "Confusion matrix: rows are true classes, and the colour is the share of their images"
        data, height = {"classes": list(classes), "table": table}, 150 + 26 * min(len(classes), 30)
        confusion.append(Chart("confusion", caption, data, height))
    caption = "Reliability (DeGroot and Fienberg 1983): the area of a mark is its share of the images"
    reliability = Chart("reliability", caption, score["reliability"])
    pictures = [("The wrong predictions with the highest confidence", worst)] if worst else []
    return [
        Section(title, text, [reliability], *_calibration_table(score)),
        Section("Classes", (), confusion, RECALL, list_recall(score["recall"]), pictures),
    ]


def _calibration_table(score: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    names = {"before": "without scaling", "after": f"at temperature {score.get('temperature', 1):.2f}"}
    rows = [
        [names[key], *(f"{measured[name]:.4f}" for name in ("ece", "brier", "nll"))]
        for key, measured in score["calibration"].items()
    ]
    return ["", "ECE (15 bins)", "Brier", "NLL"], rows


def list_recall(recall: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """A row of `RECALL` for each class."""
    return [
        [
            row["class"],
            str(row["images"]),
            str(row["found"]),
            format_found(row["interval"]) if row["images"] else "no image",
        ]
        for row in recall
    ]


def format_found(interval: Mapping[str, float]) -> str:
    """Return a share of images with its interval, as scores have them."""
    return format_interval("val_accuracy", Interval(interval["mean"], interval["low"], interval["high"]))


def format_interval(metric: str, interval: Interval) -> str:
    """Return a mean with its interval, such as `93.1 % (92.0 to 94.2 %)`."""
    return f"{format_score(metric, interval.mean)} ({format_range(metric, interval)})"


def format_range(metric: str, interval: Interval) -> str:
    """Return the ends of an interval."""
    return f"{format_score(metric, interval.low).removesuffix(' %')} to {format_score(metric, interval.high)}"


def draw_worst(
    images: torch.Tensor, worst: Sequence[WorstError], classes: Sequence[str], preprocessing: Preprocessing
) -> bytes:
    """A PNG of the worst errors: images (N, 3, side, side) as the model saw them, with the predicted and the true class."""
    from training.data.inspection.picture import draw_sheet

    captions = [f"{classes[e['predicted']]} {e['probability']:.0%}\nnot {classes[e['label']]}" for e in worst]
    stream = io.BytesIO()
    draw_sheet(images, captions, preprocessing).save(stream, "PNG")
    return stream.getvalue()


def draw_worst_of(part: ImagePart, worst: Sequence[WorstError], classes: Sequence[str], recipe: Recipe) -> bytes:
    """The same for a part of the data, as validation prepares it; empty without errors."""
    import numpy as np

    from training.data.pipelines.datasets import EvalImages

    if not worst:
        return b""
    preprocessing = recipe.evaluation_preprocessing
    chosen = part.select(np.array([error["position"] for error in worst]))
    images, _ = EvalImages(chosen, preprocessing).__getitems__(range(len(worst)))
    return draw_worst(images, worst, classes, preprocessing)
