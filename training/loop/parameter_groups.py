"""Parameter groups: the share of the learning rate that each parameter gets, and whether weight decay applies."""

from __future__ import annotations

from typing import Any

from training.contract.setup import TrainingSetup
from training.model.stages import head_of
from training.techniques.optimization.optimizer_base import BaseOptimizer


def group_parameters(setup: TrainingSetup, optimizer: BaseOptimizer, lr: float) -> list[dict[str, Any]]:
    """Group every parameter that trains, now or after a milestone; `lr` is the base rate, which the head gets.

    Optimizers skip a frozen parameter, because it has no gradient. So no group has to be added at a milestone, the
    optimizer's state is kept, and a checkpoint has the same structure before and after.
    """
    shares, undecayed, zero = setup.lr_shares or {}, setup.undecayed or set(), setup.zero_matrices or set()
    head = set(head_of(setup.model).parameters())
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for parameter in setup.trained_parameters():
        options = {"lr": lr * shares.get(parameter, 1.0)}
        if parameter in undecayed:
            options["weight_decay"] = 0.0
        options |= optimizer.options_for(parameter, starts_at_zero=parameter in zero, is_in_head=parameter in head)
        group = groups.setdefault(tuple(options.items()), {"params": [], **options})
        group["params"].append(parameter)
    return list(groups.values())
