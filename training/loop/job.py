"""One training to do, as every process that has a part in it is told."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from training.errors import UserError
from training.recipe import Recipe, read_recipe


@dataclass(frozen=True)
class Resources:
    """What a training may use."""

    threads: int = 1
    workers: int = 0  # loader processes, out of the same CPUs
    device: Literal["cpu", "cuda"] = "cpu"
    gpus: int = 1  # where the device is cuda

    def divide(self, devices: int) -> Resources:
        """What each of several devices' processes may use.

        Raises:
            UserError: there are not as many.
        """
        cpus = self.threads + self.workers
        if devices > (self.gpus if self.device == "cuda" else cpus):
            has, way = (f"{self.gpus} GPU", "gpus") if self.device == "cuda" else (f"{cpus} CPU", "cpus")
            raise UserError(
                f"data_parallel.devices={devices}, and this training has {has}: give it more, in a sweep by "
                f"--{way}-per-trial={devices}, or take fewer devices."
            )
        return replace(self, threads=max(1, self.threads // devices), workers=self.workers // devices)


ONE_CPU = Resources()


@dataclass(frozen=True)
class Job:
    """All that the processes of one training have in common."""

    recipe: Recipe
    folder: Path
    metric: str
    resources: Resources  # of each
    release: bool

    def to_json(self) -> dict[str, Any]:
        """Plain values, as another process reads them."""
        return {**asdict(self), "recipe": self.recipe.model_dump(), "folder": str(self.folder)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Job:
        read = {"recipe": read_recipe(values["recipe"]), "folder": Path(values["folder"])}
        return cls(**{**values, **read, "resources": Resources(**values["resources"])})
