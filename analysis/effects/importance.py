"""The search parameters that explain the differences between full-length scores: fANOVA (Hutter et al. 2014)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis.effects.design import make_design
from analysis.effects.search_parameters import is_interval

if TYPE_CHECKING:
    from analysis.reading.sweep_tables import Sweep

FEWEST = 8  # With fewer full-length trials, a forest finds nothing.


def measure_importance(sweep: Sweep) -> pd.Series:
    """Shares by parameter, which add up to 1, the largest first; empty if too few trials ran to full length."""
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

    design = make_design(sweep)
    full = design.points
    names = [parameter.name for parameter in design.parameters if full[parameter.name].nunique() > 1]
    if len(full) < FEWEST or not names:
        return pd.Series(dtype=float)
    kinds: dict[str, BaseDistribution] = {}
    for parameter in design.parameters:
        values = full[parameter.name]
        if is_interval(parameter.domain):  # A baseline can lie outside the interval.
            kinds[parameter.name] = FloatDistribution(min(0.0, values.min()), max(1.0, values.max()))
        else:
            kinds[parameter.name] = CategoricalDistribution(sorted(values.unique()))
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize")
    for point, score in zip(full.to_dict("records"), design.scores, strict=True):
        params: dict[str, Any] = {name: point[name] for name in names}
        chosen = {name: kinds[name] for name in names}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=chosen, value=float(score)))
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    shares = pd.Series(optuna.importance.get_param_importances(study, evaluator=evaluator), dtype=float)
    return shares.sort_values(ascending=False)
