"""No decay on norms and biases: weight decay applies to matrices and kernels only (He et al. 2019, section 3.1)."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import ClassVar

from pydantic import Field

from training.contract.part import Examples
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique
from training.contract.view import RecipeView


class NoDecay(Technique):
    interactions: ClassVar[str] = (
        "The larger the optimizer's weight_decay, the larger its effect; without weight_decay it is refused. timm models can "
        "name further parameters without decay, such as position embeddings and class tokens."
    )
    examples: ClassVar[Examples] = (
        {"no_decay": {"enabled": True}, "optimizer": {"name": "momentum", "lr": 0.03, "weight_decay": 1e-4}},
    )

    enabled: bool = Field(
        False,
        description="No weight decay on biases, other parameters of one dimension, and those that the model names.",
    )

    def apply(self, setup: TrainingSetup) -> None:
        model = setup.model
        named = model.no_weight_decay() if hasattr(model, "no_weight_decay") else ()  # type: ignore[operator]
        # As in timm's param_groups_weight_decay, but also what trains after a milestone. The lengths of kernels in lora.dora
        # are a vector with further dimensions of one entry.
        setup.undecayed = {
            parameter
            for name, parameter in model.named_parameters()
            if parameter.ndim <= 1
            or name.endswith((".bias", ".lora_magnitude_vector.default.weight"))
            or any(fnmatch(name, pattern) for pattern in named)
        }

    def conflict(self, recipe: RecipeView) -> str | None:
        if self.enabled and recipe.optimizer.weight_decay == 0:
            return "no_decay.enabled does nothing while optimizer.weight_decay is 0: set a decay, or leave it out."
        return None
