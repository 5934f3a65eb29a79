"""cuDNN benchmark: time the algorithms of each convolution once, and use the fastest (Chetlur et al. 2014)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from training.contract.part import Examples
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique
from training.errors import UserError


class CudnnBenchmark(Technique):
    interactions: ClassVar[str] = (
        "It changes speed only, except for rounding, but the fastest algorithm may differ from run to run: results no longer "
        "repeat to the last digit. Each new batch size or image size is timed again."
    )
    examples: ClassVar[Examples] = ({"cudnn_benchmark": {"enabled": True}},)
    changes_weights: ClassVar[bool] = False

    enabled: bool = Field(False, description="cuDNN chooses algorithms by timing instead of by rules. Needs a GPU.")

    def apply(self, setup: TrainingSetup) -> None:
        if setup.device == "cpu":
            raise UserError("cudnn_benchmark.enabled=true needs a GPU: a CPU has no cuDNN. Set it to false.")
        setup.set_trainer(benchmark=True)
