"""What final scores depend on: a Gaussian process over main effects and pairs (Duvenaud et al. 2011, additive kernels).

It is fitted to the trials of full length alone. A scheduler and a sampler that choose which recipes get there do no harm
to a model of scores given recipes (Rubin 1976, ignorable designs), only what they choose by luck does: docs/report.md
has how much, and what was tried to use the scores of the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from threadpoolctl import threadpool_limits

DRAWS = 2000
MAINS = (1.0, 3.0, 10.0, 30.0)  # standard deviation of a hole's effect over that of the noise
PAIRS = (0.3, 0.6)  # standard deviation of an interaction over that of the effects in it


@dataclass(frozen=True)
class Contrast:
    """A difference between means of the process: its covariance with each trial's score, and its variance.

    `holes` are those that change: one, or two for an interaction. Of one, `pair` and `pair_variance` have an axis for
    the other hole; of two, `main` is 0.
    """

    holes: tuple[int, ...]
    main: np.ndarray  # (n,)
    pair: np.ndarray  # (n, holes), or (n,) for an interaction
    main_variance: float
    pair_variance: np.ndarray  # (holes,), or () for an interaction


@dataclass(frozen=True)
class Scales:
    """Standard deviations of the holes' effects, and of an interaction over those in it; all over that of the noise."""

    holes: np.ndarray
    pairs: float

    def mix(self, alike: np.ndarray) -> np.ndarray:
        """The covariance of points whose likeness is `alike`, (holes, n, m)."""
        main = np.tensordot(self.holes**2, alike, 1)
        squares = np.tensordot(self.holes, alike, 1) ** 2 - np.tensordot(self.holes**2, alike**2, 1)
        return main + 0.5 * self.pairs**2 * squares

    def mix_contrast(self, contrast: Contrast) -> tuple[np.ndarray, float]:
        """Its covariance with each trial, (n,), and its variance."""
        if len(contrast.holes) == 2:
            weight = self.pairs**2 * np.prod(self.holes[list(contrast.holes)])
            return weight * contrast.pair, float(weight * contrast.pair_variance)
        own = self.holes[contrast.holes[0]]
        others = self.pairs**2 * own * self.holes
        variance = own**2 * contrast.main_variance + contrast.pair_variance @ others
        return own**2 * contrast.main + contrast.pair @ others, float(variance)


@dataclass(frozen=True)
class Model:
    """A fit for each setting of the scales, with the weight that the scores give it."""

    fits: list[tuple[Scales, Fit]]
    weights: np.ndarray

    def draw(self, contrasts: list[Contrast], rng: np.random.Generator) -> np.ndarray:
        """Draws of each contrast from its posterior, shape (DRAWS, contrasts)."""
        draws = [np.empty((0, len(contrasts)))]
        with threadpool_limits(1):
            for (scales, fit), count in zip(self.fits, rng.multinomial(DRAWS, self.weights), strict=True):
                if count and contrasts:
                    covariances, variances = zip(*map(scales.mix_contrast, contrasts), strict=True)
                    draws.append(fit.draw(np.array(covariances), np.array(variances), count, rng))
        return np.concatenate(draws)


def fit_model(scores: np.ndarray, alike: np.ndarray, is_choice: np.ndarray) -> Model:
    """Fit scores of shape (n,) to the likeness of trials in each hole, (holes, n, n).

    Holes that are choices, (holes,), share a scale, and intervals another.
    """
    settings = [
        Scales(np.where(is_choice, choice, interval), pairs) for choice, interval, pairs in product(MAINS, MAINS, PAIRS)
    ]
    with threadpool_limits(1):  # threads cost more than they bring on matrices of this size
        fits = [Fit.make(scores, scales.mix(alike)) for scales in settings]
    evidence = np.array([fit.evidence for fit in fits])
    weights = np.exp(evidence - evidence.max())
    return Model(list(zip(settings, fits, strict=True)), weights / weights.sum())


@dataclass(frozen=True)
class Fit:
    """The process at given scales, its noise and its mean integrated out; of n scores y with covariance V."""

    evidence: float
    factor: np.ndarray  # of V, lower
    solved: np.ndarray  # V⁻¹ (y, 1), (n, 2)
    mean: float
    spread: float  # variance of the mean over that of the noise
    residual: float  # sum of squares
    freedom: int

    @staticmethod
    def make(scores: np.ndarray, covariance: np.ndarray) -> Fit:
        n = len(scores)
        factor = np.linalg.cholesky(covariance + np.eye(n))
        half = solve_triangular(factor, np.column_stack([scores, np.ones(n)]), lower=True, check_finite=False)
        spread = 1 / float(half[:, 1] @ half[:, 1])
        mean = spread * float(half[:, 1] @ half[:, 0])
        left = half[:, 0] - mean * half[:, 1]
        residual = float(left @ left) + 1e-12
        evidence = -np.log(np.diag(factor)).sum() + 0.5 * np.log(spread) - 0.5 * (n - 1) * np.log(residual)
        solved = solve_triangular(factor, half, lower=True, trans="T", check_finite=False)
        return Fit(float(evidence), factor, solved, mean, spread, residual, n - 1)

    def draw(self, covariances: np.ndarray, variances: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
        """Draws, (count, c), of c contrasts with these covariances with the scores, (c, n), and variances, (c,)."""
        noise = np.sqrt(self.residual / rng.chisquare(self.freedom, (count, 1)))
        mean = self.mean + noise * np.sqrt(self.spread) * rng.standard_normal((count, 1))
        known = covariances @ self.solved
        reach = (covariances * cho_solve((self.factor, True), covariances.T, check_finite=False).T).sum(axis=1)
        left = np.sqrt(np.maximum(variances - reach, 0))
        return known[:, 0] - mean * known[:, 1] + noise * left * rng.standard_normal((count, len(variances)))
