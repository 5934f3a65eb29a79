"""A model of final scores: a Gaussian process over main effects and pairs (Duvenaud et al. 2011, additive kernels).

It is fitted to full-length trials only. The scheduler and the sampler choose which recipes run to full length; such a
choice does not bias a model of scores given recipes (Rubin 1976, ignorable designs), except where it depends on luck.
docs/report.md has the size of that bias, and the attempts to use the scores of other trials.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from threadpoolctl import threadpool_limits

DRAWS = 2000
# The noise between trainings has a prior with the weight of this many, because a few trainings show it badly. Its centre
# is the standard error of a score on its images: the seed changes about as many predictions as other images would.
PRIOR_TRAININGS = 2.0
MAINS = (0.3, 1.0, 3.0, 10.0)  # standard deviations of a parameter's effect, in those of the noise
PAIRS = (0.05, 0.3, 1.0)  # standard deviations of an interaction, in those of its main effects
Mixed = tuple[np.ndarray, np.ndarray]  # covariances of contrasts with the trials, (contrasts, n), and their variances


@dataclass(frozen=True)
class Contrast:
    """A difference between means of the process: its covariance with each trial's score, and its variance.

    `parameters` are the indices of those that change: one, or two for an interaction. With one, `pair` and
    `pair_variance` have an axis for the other parameter; with two, `main` is 0.
    """

    parameters: tuple[int, ...]
    main: np.ndarray  # (n,)
    pair: np.ndarray  # (n, parameters), or (n,) for an interaction
    main_variance: float
    pair_variance: np.ndarray  # (parameters,), or () for an interaction


@dataclass(frozen=True)
class Scales:
    """Standard deviations of the effects, (parameters,), and of an interaction, in those of its main effects.

    The unit of the first is the standard deviation of the noise.
    """

    parameters: np.ndarray
    pairs: float

    def mix(self, alike: np.ndarray) -> np.ndarray:
        """The covariance, (n, m), of points whose similarity is `alike`, (parameters, n, m)."""
        main = np.tensordot(self.parameters**2, alike, 1)
        squares = np.tensordot(self.parameters, alike, 1) ** 2 - np.tensordot(self.parameters**2, alike**2, 1)
        return main + 0.5 * self.pairs**2 * squares

    def mix_contrasts(self, contrasts: Sequence[Contrast]) -> Mixed:
        covariances, variances = zip(*map(self._mix_contrast, contrasts), strict=True)
        return np.array(covariances), np.array(variances)

    def _mix_contrast(self, contrast: Contrast) -> tuple[np.ndarray, float]:
        """The contrast's covariance with each trial, (n,), and its variance."""
        if len(contrast.parameters) == 2:
            weight = self.pairs**2 * np.prod(self.parameters[list(contrast.parameters)])
            return weight * contrast.pair, float(weight * contrast.pair_variance)
        scale = self.parameters[contrast.parameters[0]]
        others = self.pairs**2 * scale * self.parameters
        variance = scale**2 * contrast.main_variance + contrast.pair_variance @ others
        return scale**2 * contrast.main + contrast.pair @ others, float(variance)

    def mix_leads(self, alike: np.ndarray, first: int, others: Sequence[int]) -> Mixed:
        """The differences between the expected scores of trial `first` and those of others; `alike` as fitted."""
        near = self.mix(alike)
        return near[first] - near[others], near[first, first] + np.diag(near)[others] - 2 * near[first, others]


@dataclass(frozen=True)
class Model:
    """A fit for each setting of the scales, with its posterior weight."""

    fits: list[tuple[Scales, ProcessFit]]
    weights: np.ndarray

    def draw(self, count: int, mix: Callable[[Scales], Mixed], rng: np.random.Generator) -> np.ndarray:
        """Draws from the posterior of `count` contrasts, shape (DRAWS, count); `mix` gives them at some scales."""
        draws = [np.empty((0, count))]
        with threadpool_limits(1):
            for (scales, fit), share in zip(self.fits, rng.multinomial(DRAWS, self.weights), strict=True):
                if share and count:
                    draws.append(fit.draw(*mix(scales), share, rng))
        return np.concatenate(draws)


def fit_model(scores: np.ndarray, alike: np.ndarray, is_choice: np.ndarray, noise: float = 0.0) -> Model:
    """Fit the model.

    Args:
        scores: Higher is better, shape (n,).
        alike: The similarity of the trials in each parameter, shape (parameters, n, n).
        is_choice: A mask of the parameters that are choices, shape (parameters,). They share one scale; intervals
            share another.
        noise: The centre of the prior of the noise's standard deviation; 0 for none.
    """
    settings = [
        Scales(np.where(is_choice, choice, interval), pairs) for choice, interval, pairs in product(MAINS, MAINS, PAIRS)
    ]
    with threadpool_limits(1):  # On matrices of this size, threads cost more time than they save.
        fits = [ProcessFit.make(scores, scales.mix(alike), noise) for scales in settings]
    evidence = np.array([fit.evidence for fit in fits])
    weights = np.exp(evidence - evidence.max())
    return Model(list(zip(settings, fits, strict=True)), weights / weights.sum())


@dataclass(frozen=True)
class ProcessFit:
    """The process at given scales, with its mean and its noise integrated out; its noise has a scaled inverse-χ² prior.

    For n scores y with covariance V: `factor` is the lower Cholesky factor of V, `solved` is V⁻¹ (y, 1) of shape (n, 2),
    `spread` is the variance of the mean in that of the noise, and `residual` is a sum of squares with that of the prior.
    """

    evidence: float
    factor: np.ndarray
    solved: np.ndarray
    mean: float
    spread: float
    residual: float
    freedom: float

    @staticmethod
    def make(scores: np.ndarray, covariance: np.ndarray, noise: float) -> ProcessFit:
        n = len(scores)
        freedom = n - 1 + (PRIOR_TRAININGS if noise else 0.0)
        factor = np.linalg.cholesky(covariance + np.eye(n))
        half = solve_triangular(factor, np.column_stack([scores, np.ones(n)]), lower=True, check_finite=False)
        spread = 1 / float(half[:, 1] @ half[:, 1])
        mean = spread * float(half[:, 1] @ half[:, 0])
        left = half[:, 0] - mean * half[:, 1]
        residual = float(left @ left) + PRIOR_TRAININGS * noise**2 + 1e-12
        evidence = -np.log(np.diag(factor)).sum() + 0.5 * np.log(spread) - 0.5 * freedom * np.log(residual)
        solved = solve_triangular(factor, half, lower=True, trans="T", check_finite=False)
        return ProcessFit(float(evidence), factor, solved, mean, spread, residual, freedom)

    def draw(self, covariances: np.ndarray, variances: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
        """Draws from the posterior of each of c contrasts alone, shape (count, c): they are not joint.

        `covariances` are those of the contrasts with the scores, shape (c, n), and `variances` their own, shape (c,).
        """
        noise = np.sqrt(self.residual / rng.chisquare(self.freedom, (count, 1)))
        mean = self.mean + noise * np.sqrt(self.spread) * rng.standard_normal((count, 1))
        known = covariances @ self.solved
        reach = (covariances * cho_solve((self.factor, True), covariances.T, check_finite=False).T).sum(axis=1)
        left = np.sqrt(np.maximum(variances - reach, 0))
        return known[:, 0] - mean * known[:, 1] + noise * left * rng.standard_normal((count, 1))
