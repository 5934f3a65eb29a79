"""What a trial cut short would have scored: lines through the trials that went on (Kennedy and O'Hagan 2000)."""

from collections.abc import Mapping, Sequence

import numpy as np

SHARES = (1 / 27, 1 / 9, 1 / 3, 2 / 3)  # of a trial's own length: where trials are compared with those that went on
_ENOUGH = 3  # trials through which a line is drawn


def forecast_finals(curves: Sequence[Mapping[float, float]], completed: Sequence[bool]) -> list[float | None]:
    """Per trial (share of its own length -> best so far), its final score, known or forecast; None before SHARES begin.

    From the last share back to the first, a line through (score there, final score) of the trials that went on,
    with forecasts standing for those of them that are not done either. Before any went on, scores stand as they are.
    """
    reached = np.array([_scores_at(curve) for curve in curves]).reshape(len(curves), len(SHARES))
    finals = np.array([curve[max(curve)] if done else np.nan for curve, done in zip(curves, completed, strict=True)])
    for scores in reached.T[::-1]:
        known = ~np.isnan(scores) & ~np.isnan(finals)
        open_ = ~np.isnan(scores) & np.isnan(finals)
        finals[open_] = scores[open_]
        if known.any() and open_.any():
            finals[open_] = _draw_line(scores[known], finals[known], scores[open_])
    return [None if np.isnan(final) else float(final) for final in finals]


def _scores_at(curve: Mapping[float, float]) -> list[float]:
    """The score at each of SHARES; NaN where the trial did not come so far, to the nearest epoch."""
    shares = sorted(curve)
    slack = shares[0] / 2  # half an epoch, for a trial that reported from its first
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
