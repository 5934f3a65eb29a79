"""What trains at each level of `unfreeze`."""

from __future__ import annotations

from torch import nn

from training.contract.setup import UnfreezeStep
from training.model.batch_statistics import has_batch_norm
from training.model.stages import head_of, stages_of


def set_level(model: nn.Module, level: str, adapt_statistics: bool = False) -> UnfreezeStep:
    """Make the parameters of a level trainable, and no others."""
    trained = find_trained(model, level)
    for parameter in model.parameters():
        parameter.requires_grad_(parameter in trained)
    if level == "norm_bias":
        return trained, []  # something trains in every block, so drop path and dropout stay on in all of them
    frozen = find_frozen(model)
    return trained, [module for module in frozen if not has_batch_norm(module)] if adapt_statistics else frozen


def find_trained(model: nn.Module, level: str) -> set[nn.Parameter]:
    """Return the parameters that train at a level."""
    if level == "full":
        return set(model.parameters())
    head = set(head_of(model).parameters())
    if level == "norm_bias":
        return {*head, *(p for p in model.parameters() if p.ndim <= 1)}
    if level == "last":
        return head
    stages = stages_of(model)
    third, two_thirds = round(len(stages) / 3), round(2 * len(stages) / 3)
    chosen = {"most": stages[len(stages) // 2 :], "first": stages[:third], "middle": stages[third:two_thirds]}[level]
    if level == "first":
        chosen.append(list(set(model.parameters()) - head - {p for stage in stages for p in stage}))  # the stem
    return {*head, *(p for stage in chosen for p in stage)}


def find_frozen(model: nn.Module) -> list[nn.Module]:
    """Return the modules in which nothing trains. They should be in eval mode, dropout and BatchNorm included.

    A module without parameters, such as a dropout, is frozen if the module after it is.
    """
    frozen, next_is_frozen = [], False
    for module in reversed(list(model.modules())):  # from the last module to the first
        if direct_parameters := list(module.parameters(recurse=False)):
            next_is_frozen = not any(p.requires_grad for p in direct_parameters)
        parameters = list(module.parameters())
        if not any(p.requires_grad for p in parameters) if parameters else next_is_frozen:
            frozen.append(module)
    return frozen
