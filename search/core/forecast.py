"""Forecast the final score of a stopped trial, by lines through the trials that continued (Kennedy and O'Hagan 2000)."""

from collections.abc import Mapping, Sequence

import numpy as np

SHARES = (1 / 27, 1 / 9, 1 / 3, 2 / 3)  # shares of a trial's own length at which trials are compared
_ENOUGH = 3  # number of trials that a line needs


def forecast_finals(rows: Sequence[Sequence[float]], ends: Sequence[float]) -> list[float | None]:
    """Return the final score of each trial, known or forecast; None for a trial shorter than the first of SHARES.

    From the last share back to the first, a line is fitted to (score there, final score) of the trials that continued;
    trials among them that have not finished use their forecast. If no trial continued, the scores are used unchanged.

    Args:
        rows: For each trial, its `scores_at_shares`.
        ends: For each trial, its final score; NaN if it did not run to its end.
    """
    reached = np.array(rows).reshape(len(rows), len(SHARES))
    finals = np.array(ends, dtype=float)
    for scores in reached.T[::-1]:
        known = ~np.isnan(scores) & ~np.isnan(finals)
        open_ = ~np.isnan(scores) & np.isnan(finals)
        finals[open_] = scores[open_]
        if known.any() and open_.any():
            finals[open_] = _draw_line(scores[known], finals[known], scores[open_])
    return [None if np.isnan(final) else float(final) for final in finals]


def scores_at_shares(curve: Mapping[float, float]) -> list[float]:
    """Return the score at each of SHARES, to the nearest epoch; NaN if the trial did not reach it.

    Args:
        curve: The best score so far by share of the trial's own length.
    """
    shares = sorted(curve)
    slack = shares[0] / 2  # half an epoch, if the trial reported its first epoch
    row = []
    for share in SHARES:
        until = [s for s in shares if s <= share + slack]
        row.append(curve[until[-1] if until else shares[0]] if shares[-1] >= share - slack else np.nan)
    return row


def _draw_line(x: np.ndarray, y: np.ndarray, at: np.ndarray) -> np.ndarray:
    spread = ((x - x.mean()) ** 2).sum()
    slope = (
        1.0
        if len(x) < _ENOUGH
        else max(0.0, ((x - x.mean()) * (y - y.mean())).sum() / (spread + 1e-5 * y.var() + 1e-12))
    )
    return y.mean() + slope * (at - x.mean())
