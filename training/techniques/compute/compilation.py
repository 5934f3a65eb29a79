"""Compilation: trace the model once and run fused kernels from then on (Ansel et al. 2024)."""

from __future__ import annotations

import os
import shutil
from typing import ClassVar, Literal

from pydantic import Field

from training.contract.setup import TrainingSetup
from training.contract.technique import Technique
from training.errors import UserError


class Compilation(Technique):
    interactions: ClassVar[str] = (
        "The first steps take half a minute, and again for another batch size, image size or mode: for long trials only. "
        "Speed is all it changes, up to rounding; random draws inside the model are others than without it."
    )

    backend: Literal["none", "inductor", "aot_eager"] = Field(
        "none",
        description="inductor: fused kernels; aot_eager: traced, but run by PyTorch's own kernels, to find faults.",
    )

    def apply(self, setup: TrainingSetup) -> None:
        if self.backend == "inductor" and setup.device == "cpu" and not find_compiler():
            raise UserError(
                "compilation.backend=inductor needs a C++ compiler on a CPU, and there is neither g++ nor clang++ on PATH. "
                "Install one, name it in CXX, or use compilation.backend=none."
            )
        # In place: torch.compile would return a wrapper whose state dict has other names.
        setup.model.compile(backend=self.backend)


def find_compiler() -> str | None:
    names = (os.environ.get("CXX"), "g++", "clang++")
    return next((path for name in names if name and (path := shutil.which(name))), None)
