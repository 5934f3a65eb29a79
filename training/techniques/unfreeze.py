"""Unfreeze level: how many stages of a pretrained backbone train (Yosinski et al. 2014, section 2)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from training.techniques.base import Technique, TrainingSetup


class Unfreeze(Technique):
    level: Literal["last", "most", "full"] = Field(
        "full", description="last: the head; most: the later half of the stages too; full: everything."
    )

    def apply(self, setup: TrainingSetup) -> None:
        from training.models import head_of, stages_of

        stages = [] if self.level == "last" else stages_of(setup.model)
        trained = {id(p) for p in head_of(setup.model).parameters()}
        trained |= {id(p) for stage in stages[len(stages) // 2 :] for p in stage}
        for parameter in setup.model.parameters():
            parameter.requires_grad_(id(parameter) in trained)
        setup.frozen.extend(_outermost_frozen(setup.model))


def _outermost_frozen(module):
    """The largest modules in which nothing trains: they stay in eval mode, dropout and BatchNorm statistics included."""
    parameters = list(module.parameters())
    if parameters and not any(p.requires_grad for p in parameters):
        return [module]
    return [found for child in module.children() for found in _outermost_frozen(child)]
