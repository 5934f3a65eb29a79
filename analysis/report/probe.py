"""Sentences about the classifiers on frozen features: what they reach, and whether fine-tuning is better."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from analysis.formatting import format_points, format_score, format_seconds, plural
from training.score_metrics import MAXIMISED, is_better


def describe_probe(metric: str, figures: Mapping[str, float]) -> Iterator[str]:
    """Say what the probe reaches; nothing if the sweep has none.

    Args:
        metric: The metric of the score.
        figures: The sweep's own metrics in MLflow, by name.
    """
    score = figures.get(f"probe_{metric}")
    if score is None:
        return
    # The losses of nearest neighbours are not comparable, because many of their probabilities are 0.
    near = figures.get(f"neighbours_{metric}") if metric in MAXIMISED else None
    cost = format_seconds(max(1.0, figures["probe_seconds"]))
    images = plural(int(figures["probe_train_images"]), "training image")
    yield (
        f"A linear probe on frozen features reaches {format_score(metric, score, figures['probe_standard_error'])}"
        f"{'' if near is None else f' (nearest neighbours: {format_score(metric, near)})'}. It took {cost} and "
        f"used {images}."
    )


def compare_with_probe(metric: str, figures: Mapping[str, float], name: str, score: float) -> Iterator[str]:
    """Say that the best trial is not better than the probe; nothing if it is better, or the sweep has no probe."""
    probe = figures.get(f"probe_{metric}")
    if probe is None or is_better(metric, score, probe):
        return
    gap = abs(score - probe)
    how = f"is {format_points(metric, gap)} behind it" if gap else "is no better"
    yield f"Fine-tuning does not beat the linear probe: the best trial, {name}, {how}."
