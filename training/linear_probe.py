"""A linear probe and a nearest-neighbour classifier on the features of the frozen backbone (Kornblith et al. 2019)."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from torch import nn

from training.data.files.images import ImageData, ImagePart
from training.data.load_data import load_data
from training.data.pipelines.loaders import make_eval_loader
from training.data.splits import split_stratified
from training.loop.metrics import measure
from training.model.build import build_model
from training.model.stages import head_of
from training.process.isolation import isolated_process
from training.recipe import Recipe
from training.resolve import resolve_recipe
from training.score_metrics import MAXIMISED, is_better

MOST_IMAGES = 2000  # of each part, so that the probe takes seconds
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)  # scikit-learn's C for standardised features; the strongest first
NEIGHBOURS = (1, 5, 20)
MOST_STEPS = 300  # of the solver, which starts each C at the solution of the one before


@dataclass(frozen=True)
class ProbeScore:
    """The validation metrics of one classifier; `setting` is the one of its settings that validation chose."""

    setting: float
    metrics: dict[str, float]
    standard_error: float  # of the metric that chose


@dataclass(frozen=True)
class ProbeResult:
    """The scores of classifiers on frozen features."""

    linear: ProbeScore  # its setting is C, the inverse strength of the L2 penalty
    knn: ProbeScore  # its setting is the number of neighbours
    train_images: int  # used, a stratified sample of the training part
    val_images: int
    seconds: float


def probe_features(recipe: Recipe, metric: str, threads: int) -> ProbeResult:
    """Fit classifiers on the frozen features of a recipe's backbone, on a CPU. The test split is not used.

    Only the data, preprocessing, backbone and seed of the recipe matter. At most 2,000 images of each part are used.
    """
    began = time.perf_counter()
    data = load_data(recipe.data)
    wanted = Recipe(data=recipe.data, preprocessing=recipe.preprocessing, backbone=recipe.backbone, seed=recipe.seed)
    with isolated_process(recipe.seed, threads):
        wanted = resolve_recipe(wanted, data, "cpu")
        train, val = (_take_sample(part, recipe.data.split_seed) for part in (data.train, data.val))
        linear, knn = _score(_compute_features(wanted, data, (train, val)), (train, val), data, metric)
    return ProbeResult(linear, knn, len(train), len(val), time.perf_counter() - began)


def _take_sample(part: ImagePart, seed: int) -> ImagePart:
    return part if len(part) <= MOST_IMAGES else part.select(split_stratified(part.labels, (MOST_IMAGES,), seed)[0])


def _compute_features(recipe: Recipe, data: ImageData, parts: tuple[ImagePart, ...]) -> list[np.ndarray]:
    """Return the inputs of the head for each part, float32 (N, features)."""
    side = recipe.preprocessing.side
    model = build_model(recipe.backbone, len(data.classes), side).eval()
    features = []
    for part in parts:
        with _recorded_inputs(head_of(model)) as inputs, torch.inference_mode():
            for images, _ in make_eval_loader(part, recipe, workers=0):
                model(images)
        features.append(torch.cat(inputs).numpy())
    return features


@contextmanager
def _recorded_inputs(head: nn.Module) -> Iterator[list[torch.Tensor]]:
    """Collect the input of the head of each batch as (N, features); positions in an image are averaged."""
    layers = [head] if not isinstance(head, nn.ModuleList) else list(head)[:1]
    inputs: list[torch.Tensor] = []

    def record(_: nn.Module, given: tuple[torch.Tensor, ...]) -> None:
        inputs.append(given[0].flatten(2).mean(2) if given[0].dim() > 2 else given[0])

    handles = [layer.register_forward_pre_hook(record) for layer in layers]
    try:
        yield inputs
    finally:
        for handle in handles:
            handle.remove()


def _score(
    features: list[np.ndarray], parts: tuple[ImagePart, ImagePart], data: ImageData, metric: str
) -> tuple[ProbeScore, ProbeScore]:
    (train, val), count = parts, len(data.classes)
    scaler = StandardScaler().fit(features[0])
    seen, unseen = (scaler.transform(part).astype(np.float64) for part in features)
    regression = LogisticRegression(max_iter=MOST_STEPS, warm_start=True)

    def predict_linear(penalty: float) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a solver that stops early is a valid candidate too
            regression.set_params(C=penalty).fit(seen, train.labels)
        return _spread(regression.predict_proba(unseen), regression.classes_, count)

    def predict_near(k: float) -> np.ndarray:
        near = KNeighborsClassifier(int(k), weights="distance", metric="cosine").fit(seen, train.labels)
        return _spread(near.predict_proba(unseen), near.classes_, count)

    linear = _choose(PENALTIES, predict_linear, val.labels, metric, count)
    near_metric = metric if metric in MAXIMISED else "val_accuracy"  # its probabilities are often 0
    fitting = [number for number in NEIGHBOURS if number <= len(train)]
    return linear, _choose(fitting, predict_near, val.labels, near_metric, count)


def _choose(
    settings: tuple[float, ...] | list[int],
    predict: Callable[[float], np.ndarray],
    labels: np.ndarray,
    metric: str,
    class_count: int,
) -> ProbeScore:
    """Return the best setting by the metric; of equal ones the first."""
    best: ProbeScore | None = None
    truth = torch.from_numpy(labels)
    for setting in settings:
        shares = torch.from_numpy(predict(setting))
        confidence, predicted = shares.max(1)
        losses = -shares[torch.arange(len(truth)), truth].clamp(min=1e-12).log()
        metrics, error = measure((truth, predicted, confidence.float(), losses), class_count, metric)
        if best is None or is_better(metric, metrics[metric], best.metrics[metric]):
            best = ProbeScore(setting, metrics, error)
    assert best is not None
    return best


def _spread(shares: np.ndarray, classes: np.ndarray, count: int) -> np.ndarray:
    """Return probabilities (N, count) from those of the classes (N, len(classes)) that the sample has."""
    whole = np.zeros((len(shares), count))
    whole[:, classes] = shares
    return whole
