"""Compilation: trace the model once, then run fused kernels (Ansel et al. 2024)."""

from __future__ import annotations

import os
import shutil
from typing import ClassVar, Literal

from pydantic import Field

from training.contract.part import Examples
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique
from training.errors import UserError


class Compilation(Technique):
    interactions: ClassVar[str] = (
        "The first steps take half a minute, and so does each new batch size, image size or mode: use it for long trials only. "
        "It changes speed only, except for rounding and for random draws inside the model, which differ."
    )
    examples: ClassVar[Examples] = ({"compilation": {"backend": "inductor"}},)
    changes_weights: ClassVar[bool] = False

    backend: Literal["none", "inductor", "aot_eager"] = Field(
        "none", description="inductor: fused kernels; aot_eager: traced, but with PyTorch's own kernels, for debugging."
    )

    def apply(self, setup: TrainingSetup) -> None:
        if self.backend == "inductor" and setup.device == "cpu" and not find_compiler():
            raise UserError(
                "compilation.backend=inductor needs a C++ compiler on a CPU, and there is neither g++ nor clang++ on PATH. "
                "Install one, name it in CXX, or use compilation.backend=none."
            )
        from training.callbacks.resizing import BatchResizing

        # A graph of its own for each batch size: after the smaller last batch of the first epoch, torch would otherwise
        # use one graph for any size in all later steps, which is slower. Growing images would need too many graphs.
        grows = any(isinstance(callback, BatchResizing) for callback in setup.callbacks)
        # torch.compile is not used, because it returns a wrapper whose state dict has other names.
        setup.model.compile(backend=self.backend, dynamic=None if grows else False)

    @property
    def breaks_features(self) -> str:
        return "it compiles the model as a whole"


def find_compiler() -> str | None:
    """Return the path of a C++ compiler: CXX, g++ or clang++; None if there is none."""
    names = (os.environ.get("CXX"), "g++", "clang++")
    return next((path for name in names if name and (path := shutil.which(name))), None)
