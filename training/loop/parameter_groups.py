"""Parameter groups: what share of the learning rate each parameter gets, and whether weight decay pulls on it."""

from __future__ import annotations

from typing import Any

from torch import nn

from training.contract.setup import TrainingSetup


def group_parameters(setup: TrainingSetup, lr: float) -> list[dict[str, Any]]:
    """Group every parameter that trains, now or after a milestone; `lr` is the base rate, which the head has.

    A parameter that is still frozen has no gradient, and optimizers pass over it: so nothing has to be added at a
    milestone, where the states of the others might be lost, and a checkpoint looks alike before and after.
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
