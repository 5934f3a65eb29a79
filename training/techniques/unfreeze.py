"""Unfreeze level: how many stages of a pretrained backbone train (Yosinski et al. 2014, section 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from training.techniques.base import Technique, TrainingSetup

if TYPE_CHECKING:
    from torch import nn


class Unfreeze(Technique):
    interactions: ClassVar[str] = (
        "It means little without pretrained weights. last leads after few epochs and seldom at the end, so early stopping "
        "favours it unless trials are compared within their level. The less trains, the higher a learning rate it bears, "
        "and the less regularisation it needs."
    )

    level: Literal["last", "most", "full"] = Field(
        "full", description="last: the head; most: the later half of the stages too; full: everything."
    )

    def apply(self, setup: TrainingSetup) -> None:
        from training.stages import head_of, stages_of

        stages = [] if self.level == "last" else stages_of(setup.model)
        trained = {id(p) for p in head_of(setup.model).parameters()}
        trained |= {id(p) for stage in stages[len(stages) // 2 :] for p in stage}
        for parameter in setup.model.parameters():
            parameter.requires_grad_(id(parameter) in trained)
        setup.frozen.extend(find_frozen(setup.model))


def find_frozen(model: nn.Module) -> list[nn.Module]:
    """Modules in which nothing trains. One without parameters, as a dropout, counts as what it feeds.

    They belong in eval mode, dropout and BatchNorm statistics included.
    """
    frozen, feeds_frozen = [], False
    for module in reversed(list(model.modules())):  # what comes later in the network is seen first
        if own := list(module.parameters(recurse=False)):
            feeds_frozen = not any(p.requires_grad for p in own)
        parameters = list(module.parameters())
        if not any(p.requires_grad for p in parameters) if parameters else feeds_frozen:
            frozen.append(module)
    return frozen
