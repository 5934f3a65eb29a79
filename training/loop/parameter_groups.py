"""Parameter groups: the share of the learning rate that each parameter gets, and whether weight decay applies."""

from __future__ import annotations

from typing import Any

from torch import nn

from training.contract.setup import TrainingSetup


def group_parameters(setup: TrainingSetup, lr: float) -> list[dict[str, Any]]:
    """Group every parameter that trains, now or after a milestone; `lr` is the base rate, which the head gets.

    Optimizers skip a frozen parameter, because it has no gradient. So no group has to be added at a milestone, the
    optimizer's state is kept, and a checkpoint has the same structure before and after.
    """
    shares, undecayed = setup.lr_shares or {}, setup.undecayed or set()
    unfrozen_later = {parameter for trained, _ in setup.unfreeze_steps.values() for parameter in trained}
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for parameter in setup.model.parameters():
        if parameter.requires_grad or parameter in unfrozen_later:
            groups.setdefault((shares.get(parameter, 1.0), parameter in undecayed), []).append(parameter)
    return [
        {"params": parameters, "lr": lr * share, **({"weight_decay": 0.0} if spared else {})}
        for (share, spared), parameters in groups.items()
    ]
