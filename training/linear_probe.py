"""The linear probe on the features of the frozen backbone, as the start of a head (Kumar et al. 2022, section 3.3)."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from training.data.files.images import ImagePart
from training.data.pipelines.loaders import close_loader, make_eval_loader
from training.errors import UserError
from training.features.split import NoSplit, split_model
from training.features.stored import FeatureMaker
from training.loop.classifier import Classifier
from training.model.levels import set_level
from training.model.shares_loss import SharesLoss
from training.model.stages import head_of

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression

MOST_IMAGES = 2000  # of a cross-validation, so that it takes seconds
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)  # scikit-learn's C for features of unit scale; the strongest first
MOST_STEPS = 300  # of the solver, which starts each C at the solution of the one before
FOLDS = 5
ABSENT = -20.0  # the logit of a class without images, below that of the others
BATCH = 1024

logger = logging.getLogger(__name__)


@contextmanager
def recorded_inputs(head: nn.Module) -> Iterator[list[torch.Tensor]]:
    """Collect the input of the head of each batch as (N, features); positions in an image are averaged."""
    inputs: list[torch.Tensor] = []

    def record(_: nn.Module, given: tuple[torch.Tensor, ...]) -> None:
        inputs.append(given[0].flatten(2).mean(2) if given[0].dim() > 2 else given[0])

    with (head[0] if isinstance(head, nn.ModuleList) else head).register_forward_pre_hook(record):
        yield inputs


def start_head(classifier: Classifier, part: ImagePart, workers: int) -> None:
    """Give the head of a new training the weights of the logistic regression; `part` are its training images.

    What a logit-adjusted loss adds to the logits is taken off, so that the head, like the training, treats all classes as
    equally frequent (Menon et al. 2021, section 4).
    """
    c, head = classifier.plan.head_start, head_of(classifier.model)
    assert c is not None
    if not isinstance(head, nn.Linear):
        raise UserError(f"linear_probe.c={c}: the head of {type(classifier.model).__name__} is not linear. Use c=off.")
    features = compute_head_inputs(classifier, part, workers)
    chosen = choose_c(features, part.labels, classifier.recipe.seed) if c == "auto" else float(c)
    weight, bias = fit_logistic(features, part.labels, classifier.plan.class_count, chosen)
    logger.info("The head starts at the logistic regression on %d images with C = %g.", len(part), chosen)
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(weight))
        if head.bias is None:
            raise UserError(f"linear_probe.c={c}: the head of {type(classifier.model).__name__} has no bias. Use off.")
        head.bias.copy_(torch.from_numpy(bias))
        if isinstance(classifier.criterion, SharesLoss) and classifier.criterion.offset is not None:
            head.bias.sub_(classifier.criterion.offset.to(head.bias.device))


def compute_head_inputs(classifier: Classifier, part: ImagePart, workers: int) -> np.ndarray:
    """Return what the head gets for each image, float32 (N, features); the stored features of level `last` where possible."""
    recipe, device = classifier.recipe.without("evaluation_size"), classifier.plan.device
    model = copy.deepcopy(classifier.model).to(device).train()
    if recipe.precision.mode == "64-true":  # the images are not
        model.float()
    for module in set_level(model, "last")[1]:
        module.eval()
    with recorded_inputs(head_of(model)) as inputs:
        try:
            split = split_model(model)
            inputs.clear()  # what the trace has recorded
            maker = FeatureMaker(split, recipe, device, workers)
            if not maker.fits(part, recipe):
                raise NoSplit("the cache of features is too small")
            stored = maker.make(part, recipe)
            inputs.clear()
            model.eval()
            with torch.inference_mode():
                for begin in range(0, len(part), BATCH):
                    values = stored.__getitems__(range(begin, min(begin + BATCH, len(part))))[0].values
                    # Those of a bf16 recipe are bf16.
                    split.compute_logits(values.to(device, next(model.parameters()).dtype))
        except NoSplit:
            inputs.clear()
            loader = make_eval_loader(part, recipe, workers=workers, device=device)
            try:
                with torch.inference_mode():
                    for images, _ in loader:
                        model.eval()(images.to(device))
            finally:
                close_loader(loader)
        return torch.cat([each.float().cpu() for each in inputs]).numpy()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let NumPy use one thread: for so small products two take three times as long, and more beside another trial."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        yield


@_one_thread()
def choose_c(features: np.ndarray, labels: np.ndarray, seed: int) -> float:
    """Return the C with the lowest log loss in a cross-validation: weaker penalties are tried until one is worse.

    Classes with a single image are left out; the middle C where fewer than two are left.
    """
    from sklearn.metrics import log_loss
    from sklearn.model_selection import StratifiedKFold, train_test_split

    if len(labels) > MOST_IMAGES:
        chosen = train_test_split(np.arange(len(labels)), train_size=MOST_IMAGES, random_state=seed % 2**32)[0]
        features, labels = features[chosen], labels[chosen]
    classes, counts = np.unique(labels, return_counts=True)
    classes, counts = classes[counts > 1], counts[counts > 1]
    if len(classes) < 2:
        return PENALTIES[len(PENALTIES) // 2 - 1]
    is_kept, folds = np.isin(labels, classes), min(FOLDS, int(counts.min()))
    features, labels = features[is_kept], labels[is_kept]
    parts = list(StratifiedKFold(folds, shuffle=True, random_state=seed % 2**32).split(features, labels))
    fitted = [Regression(features[train], labels[train]) for train, _ in parts]
    best, least = PENALTIES[0], np.inf
    for c in PENALTIES:
        shares = [regression.predict(c, features[test]) for regression, (_, test) in zip(fitted, parts, strict=True)]
        loss = sum(log_loss(labels[test], each, labels=classes) for each, (_, test) in zip(shares, parts, strict=True))
        if loss >= least:
            break
        best, least = c, loss
    return best


class Regression:
    """scikit-learn's logistic regression on centred features; each C starts at the solution of the one before.

    All features have one scale, the mean of their standard deviations. With a scale for each, as usual for a probe, the
    accuracy is the same, but features that hardly vary get weights so large that fine-tuning destroys what the probe knew:
    28 % of unseen photographs where one scale had 67 % (400 photographs, three or four epochs, BatchNorm not frozen).

    An L2 penalty does not change when features are rotated, so fewer images than features are first rotated into as many
    dimensions as there are images, which takes less time.
    """

    def __init__(self, features: np.ndarray, labels: np.ndarray) -> None:
        from sklearn.linear_model import LogisticRegression

        self.labels = labels
        self.mean, self.scale = features.mean(0), float(features.std(0).mean()) or 1.0
        scaled = self._scale(features)
        self.rotation = np.linalg.svd(scaled, full_matrices=False)[2].T if len(scaled) < scaled.shape[1] else None
        self.features = scaled if self.rotation is None else scaled @ self.rotation
        self.model = LogisticRegression(max_iter=MOST_STEPS, warm_start=True)

    def _scale(self, features: np.ndarray) -> np.ndarray:
        return ((features - self.mean) / self.scale).astype(np.float64)

    def fit(self, c: float) -> LogisticRegression:
        from sklearn.exceptions import ConvergenceWarning

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a solver that stops early is a valid candidate too
            return self.model.set_params(C=c).fit(self.features, self.labels)

    def predict(self, c: float, unseen: np.ndarray) -> np.ndarray:
        """Return the probabilities (N, classes) of unseen images."""
        scaled = self._scale(unseen)
        return self.fit(c).predict_proba(scaled if self.rotation is None else scaled @ self.rotation)


@_one_thread()
def fit_logistic(features: np.ndarray, labels: np.ndarray, count: int, c: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the weight (count, features) and the bias (count,) of a linear layer on the features as they are."""
    regression = Regression(features, labels)
    for each in (*(penalty for penalty in PENALTIES if penalty < c), c):
        fitted = regression.fit(each)
    inner, offset = fitted.coef_, fitted.intercept_
    if regression.rotation is not None:
        inner = inner @ regression.rotation.T
    if len(fitted.classes_) == 2:  # scikit-learn has one row for two classes
        inner, offset = np.vstack([-inner / 2, inner / 2]), np.array([-offset[0] / 2, offset[0] / 2])
    weight, bias = np.zeros((count, features.shape[1]), np.float32), np.full(count, ABSENT, np.float32)
    weight[fitted.classes_] = inner / regression.scale
    bias[fitted.classes_] = offset - inner @ (regression.mean / regression.scale)
    return weight, bias
