"""What final scores depend on, where most trials were stopped early: a chain of regressions from rung to rung.

A scheduler stops by scores that were reported, so within each rung, given the scores there, who went on says nothing
more (Rubin 1976, "missing at random"). The final score is therefore a chain (Little and Rubin 2019, section 7.4,
monotone missingness): the score at each rung given the one before and the recipe, fitted to the trials that came that
far. Recipes enter through a Gaussian process over main effects and pairs (Duvenaud et al. 2011, additive kernels).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

DRAWS = 1000
MAINS = (0.03, 0.3, 3.0, 30.0, 300.0)  # variance of a hole's effect over that of the noise
PAIRS = (0.03, 0.2)  # variance of an interaction over that of the effects in it


@dataclass(frozen=True)
class Alike:
    """Likeness between two sets of points: sums over holes and over squares, for intervals and for choices."""

    sums: np.ndarray  # (2, n, m)
    squares: np.ndarray  # (2, n, m)

    def mix(self, mains: tuple[float, float], pairs: float) -> np.ndarray:
        """The covariance for variances of main effects (intervals, choices) and of pairs."""
        weight = np.array(mains)[:, None, None]
        main = (weight * self.sums).sum(axis=0)
        product = (np.sqrt(weight) * self.sums).sum(axis=0) ** 2 - (weight * self.squares).sum(axis=0)
        return main + pairs / 2 * product


@dataclass(frozen=True)
class Contrast:
    """A difference between means of the process: what of it each trial knows, and its own variance.

    `main` is None for an interaction. The last axis of the arrays for pairs: with intervals, with choices.
    """

    kinds: tuple[int, ...]  # 0 interval, 1 choice: of the holes that change
    main: np.ndarray | None  # (n,)
    pair: np.ndarray  # (n, 2), or (n,) for an interaction
    main_variance: float
    pair_variance: np.ndarray  # (2,), or () for an interaction

    def mix(self, mains: tuple[float, float], pairs: float) -> tuple[np.ndarray, float]:
        own = np.sqrt(np.prod([mains[kind] for kind in self.kinds]))
        if self.main is None:
            return pairs * own * self.pair, float(pairs * own * self.pair_variance)
        others = pairs * np.sqrt(mains[self.kinds[0]]) * np.sqrt(np.array(mains))
        weight = mains[self.kinds[0]]
        covariance = weight * self.main + self.pair @ others
        return covariance, float(weight * self.main_variance + self.pair_variance @ others)


def draw_effects(stages: list[np.ndarray], alike: Alike, contrasts: list[Contrast], rng: np.random.Generator) -> np.ndarray:
    """Draws of each contrast in the final score from its posterior, shape (DRAWS, contrasts).

    `stages` are scores at each rung and at the end, each of shape (n,), NaN where a trial did not come.
    """
    total = np.zeros((DRAWS, len(contrasts)))
    for number, scores in enumerate(stages):
        before = stages[number - 1] if number else None
        here = ~np.isnan(scores) if before is None else ~np.isnan(scores) & ~np.isnan(before)
        slope, steps = _draw_stage(scores[here], None if before is None else before[here], here, alike, contrasts, rng)
        total = slope[:, None] * total + steps
    return total


def _draw_stage(
    scores: np.ndarray,
    before: np.ndarray | None,
    here: np.ndarray,
    alike: Alike,
    contrasts: list[Contrast],
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Draws of the slope on the score before, (DRAWS,), and of what each contrast adds, (DRAWS, contrasts)."""
    n = len(scores)
    fixed = np.ones((n, 1)) if before is None else np.column_stack([np.ones(n), before])
    part = Alike(alike.sums[:, here][:, :, here], alike.squares[:, here][:, :, here])
    settings = [(mains, pairs) for mains in itertools.product(MAINS, MAINS) for pairs in PAIRS]
    fits = [_Fit.make(scores, fixed, part.mix(mains, pairs)) for mains, pairs in settings]
    evidence = np.array([fit.evidence for fit in fits])
    weights = np.exp(evidence - evidence.max())
    counts = rng.multinomial(DRAWS, weights / weights.sum())
    slopes, steps = [], []
    for (mains, pairs), fit, count in zip(settings, fits, counts, strict=True):
        if count:
            mixed = [contrast.mix(mains, pairs) for contrast in contrasts]
            covariances = np.array([covariance[here] for covariance, _ in mixed]).reshape(len(contrasts), n)
            slope, step = fit.draw(covariances, np.array([variance for _, variance in mixed]), count, rng)
            slopes.append(slope)
            steps.append(step)
    order = rng.permutation(DRAWS)  # stages are independent, settings must not line up
    return np.concatenate(slopes)[order], np.concatenate(steps)[order]


@dataclass(frozen=True)
class _Fit:
    """Generalised least squares in one setting, its noise and its fixed effects integrated out."""

    evidence: float
    solved: np.ndarray  # V⁻¹ (y, X), (n, 1 + q)
    factor: np.ndarray  # of V, lower
    fixed: np.ndarray
    coefficients: np.ndarray
    spread: np.ndarray  # (X' V⁻¹ X)⁻¹
    residual: float  # sum of squares
    freedom: int

    @staticmethod
    def make(scores: np.ndarray, fixed: np.ndarray, covariance: np.ndarray) -> _Fit:
        n, q = fixed.shape
        factor = np.linalg.cholesky(covariance + np.eye(n))
        half = np.linalg.solve(factor, np.column_stack([scores, fixed]))
        spread = np.linalg.inv(half[:, 1:].T @ half[:, 1:] + 1e-12 * np.eye(q))
        coefficients = spread @ half[:, 1:].T @ half[:, 0]
        left = half[:, 0] - half[:, 1:] @ coefficients
        residual, freedom = float(left @ left) + 1e-12, n - q
        logs = 2 * np.log(np.diag(factor)).sum() - np.linalg.slogdet(spread)[1]
        evidence = -0.5 * logs - 0.5 * freedom * np.log(residual)
        solved = np.linalg.solve(factor.T, half)
        return _Fit(evidence, solved, factor, fixed, coefficients, spread, residual, freedom)

    def draw(
        self, covariances: np.ndarray, variances: np.ndarray, count: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        noise = self.residual / rng.chisquare(max(1, self.freedom), count)
        root = np.linalg.cholesky(self.spread)
        shift = np.sqrt(noise)[:, None] * (rng.standard_normal((count, len(root))) @ root.T)
        coefficients = self.coefficients + shift
        known = covariances @ self.solved  # of y, then of each fixed effect
        means = known[:, 0] - coefficients @ known[:, 1:].T
        reach = np.linalg.solve(self.factor, covariances.T)
        left = np.maximum(variances - (reach**2).sum(axis=0), 0)
        steps = means + np.sqrt(noise[:, None] * left) * rng.standard_normal(means.shape)
        slope = coefficients[:, 1] if coefficients.shape[1] > 1 else np.zeros(count)
        return slope, steps
