"""Which holes the differences between full-length scores come from: fANOVA (Hutter et al. 2014), as Optuna has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis.effects.design import make_design
from analysis.effects.search_parameters import is_interval

if TYPE_CHECKING:
    from analysis.reading.sweep_tables import Sweep

FEWEST = 8  # trials of full length, for a forest to tell anything


def measure_importance(sweep: Sweep) -> pd.Series:
    """Shares by hole, which add up to 1, the largest first; empty where too few trials ran to full length."""
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

    design = make_design(sweep)
    full = design.points
    names = [hole.name for hole in design.holes if full[hole.name].nunique() > 1]
    if len(full) < FEWEST or not names:
        return pd.Series(dtype=float)
    kinds: dict[str, BaseDistribution] = {}
    for hole in design.holes:
        values = full[hole.name]
        if is_interval(hole.domain):  # a baseline may lie outside
            kinds[hole.name] = FloatDistribution(min(0.0, values.min()), max(1.0, values.max()))
        else:
            kinds[hole.name] = CategoricalDistribution(sorted(values.unique()))
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize")
    for point, score in zip(full.to_dict("records"), design.scores, strict=True):
        params: dict[str, Any] = {name: point[name] for name in names}
        chosen = {name: kinds[name] for name in names}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=chosen, value=float(score)))
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    shares = pd.Series(optuna.importance.get_param_importances(study, evaluator=evaluator), dtype=float)
    return shares.sort_values(ascending=False)
