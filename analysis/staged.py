"""What final scores depend on, where most trials were stopped early: a chain of regressions from rung to rung.

A scheduler stops by scores that were reported, so within each rung, given the scores there, who went on says nothing
more (Rubin 1976, "missing at random"). The final score is therefore a chain (Little and Rubin 2019, section 7.4,
monotone missingness): the score at each rung given the one before and the recipe, fitted to the trials that came that
far. Recipes enter through a Gaussian process over main effects and pairs (Duvenaud et al. 2011, additive kernels); its
scales are integrated out on a grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from threadpoolctl import threadpool_limits

DRAWS = 2000
MAINS = (0.17, 0.55, 1.7, 5.5, 17.0)  # standard deviation of a hole's effect over that of the noise
PAIRS = (0.17, 0.45)  # standard deviation of an interaction over that of the effects in it


@dataclass(frozen=True)
class Contrast:
    """A difference between means of the process: what of it each trial knows, and its own variance.

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
class Stage:
    """One regression of the chain: the trials in it, of n, and a fit for each setting of the scales, with its weight."""

    here: np.ndarray  # (n,)
    fits: list[tuple[Scales, Fit]]
    weights: np.ndarray


def fit_stages(scores: list[np.ndarray], alike: np.ndarray, is_choice: np.ndarray) -> list[Stage]:
    """Fit the chain to scores at each rung and at the end, each of shape (n,), NaN where a trial did not come.

    `alike` is the likeness of the trials in each hole, (holes, n, n). Choices share a scale, and intervals another.
    """
    stages = []
    settings = [
        Scales(np.where(is_choice, choice, interval), pairs) for choice, interval, pairs in product(MAINS, MAINS, PAIRS)
    ]
    with threadpool_limits(1):  # threads cost more than they bring on matrices of this size
        for number, after in enumerate(scores):
            before = scores[number - 1] if number else np.zeros(len(after))
            here = ~np.isnan(after) & ~np.isnan(before)
            columns = [np.ones(here.sum())] + ([before[here]] if number else [])
            part = alike[:, here][:, :, here]
            fits = [Fit.make(after[here], np.column_stack(columns), scales.mix(part)) for scales in settings]
            evidence = np.array([fit.evidence for fit in fits])
            weights = np.exp(evidence - evidence.max())
            stages.append(Stage(here, list(zip(settings, fits, strict=True)), weights / weights.sum()))
    return stages


def draw_effects(stages: list[Stage], contrasts: list[Contrast], rng: np.random.Generator) -> np.ndarray:
    """Draws of each contrast in the final score from its posterior, shape (DRAWS, contrasts)."""
    total = np.zeros((DRAWS, len(contrasts)))
    with threadpool_limits(1):
        for stage in stages:
            slope, steps = _draw_stage(stage, contrasts, rng)
            total = slope[:, None] * total + steps
    return total


def _draw_stage(stage: Stage, contrasts: list[Contrast], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draws of the slope on the score before, (DRAWS,), and of what each contrast adds, (DRAWS, contrasts)."""
    slopes, steps = [], []
    for (scales, fit), count in zip(stage.fits, rng.multinomial(DRAWS, stage.weights), strict=True):
        if count:
            mixed = [scales.mix_contrast(contrast) for contrast in contrasts]
            covariances = np.array([covariance[stage.here] for covariance, _ in mixed]).reshape(len(contrasts), -1)
            slope, step = fit.draw(covariances, np.array([variance for _, variance in mixed]), count, rng)
            slopes.append(slope)
            steps.append(step)
    order = rng.permutation(DRAWS)  # stages are independent, settings must not line up
    return np.concatenate(slopes)[order], np.concatenate(steps)[order]


@dataclass(frozen=True)
class Fit:
    """Generalised least squares at given scales, its noise and its fixed effects integrated out."""

    evidence: float
    factor: np.ndarray  # of the covariance V, lower
    solved: np.ndarray  # V⁻¹ (y, X), (n, 1 + q)
    coefficients: np.ndarray
    spread: np.ndarray  # (X' V⁻¹ X)⁻¹
    residual: float  # sum of squares
    freedom: int

    @staticmethod
    def make(scores: np.ndarray, fixed: np.ndarray, covariance: np.ndarray) -> Fit:
        n, q = fixed.shape
        factor = np.linalg.cholesky(covariance + np.eye(n))
        half = solve_triangular(factor, np.column_stack([scores, fixed]), lower=True, check_finite=False)
        spread = np.linalg.inv(half[:, 1:].T @ half[:, 1:])
        coefficients = spread @ half[:, 1:].T @ half[:, 0]
        left = half[:, 0] - half[:, 1:] @ coefficients
        residual, freedom = float(left @ left) + 1e-12, n - q
        logs = 2 * np.log(np.diag(factor)).sum() - np.linalg.slogdet(spread)[1]
        evidence = float(-0.5 * logs - 0.5 * freedom * np.log(residual))
        solved = solve_triangular(factor, half, lower=True, trans="T", check_finite=False)
        return Fit(evidence, factor, solved, coefficients, spread, residual, freedom)

    def draw(
        self, covariances: np.ndarray, variances: np.ndarray, count: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        noise = self.residual / rng.chisquare(self.freedom, count)
        root = np.linalg.cholesky(self.spread)
        shift = np.sqrt(noise)[:, None] * (rng.standard_normal((count, len(root))) @ root.T)
        coefficients = self.coefficients + shift
        known = covariances @ self.solved  # of y, then of each fixed effect
        means = known[:, 0] - coefficients @ known[:, 1:].T
        reach = (covariances * cho_solve((self.factor, True), covariances.T, check_finite=False).T).sum(axis=1)
        left = np.maximum(variances - reach, 0)
        steps = means + np.sqrt(noise[:, None] * left) * rng.standard_normal(means.shape)
        return coefficients[:, 1] if len(root) > 1 else np.zeros(count), steps
