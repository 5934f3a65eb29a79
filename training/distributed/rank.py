"""Which of the processes that train one recipe together this is, and what they tell each other."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


@dataclass(frozen=True)
class Rank:
    """One device's process, `number` of `count`. Whatever the others have a part in, all must call, in the same order."""

    number: int = 0
    count: int = 1

    @property
    def leads(self) -> bool:
        """Whether it is the process that was asked to train: the only one that writes and reports."""
        return self.number == 0

    def share(self, things: Sequence[T]) -> Sequence[T]:
        """Its own of some things; the shares of all are of the same size, or differ by one."""
        return things[self.number :: self.count]

    def join(self, shares: Sequence[torch.Tensor]) -> torch.Tensor:
        """All the ranks' shares of something, back in its order."""
        import torch

        whole = torch.empty(sum(map(len, shares)), dtype=shares[0].dtype)
        for number, own in enumerate(shares):
            whole[number :: self.count] = own
        return whole

    def gather(self, value: T) -> list[T]:
        """Each rank's value, by number: plain values and tensors, as what comes from another process is not unpickled."""
        if self.count == 1:
            return [value]
        import torch
        from torch import distributed

        file = io.BytesIO()
        torch.save(value, file)
        device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
        own = torch.frombuffer(file.getbuffer(), dtype=torch.uint8).to(device)
        sizes = [torch.empty(1, dtype=torch.int64, device=device) for _ in range(self.count)]
        distributed.all_gather(sizes, torch.tensor([len(own)], device=device))
        longest = max(int(size) for size in sizes)
        shares = [torch.empty(longest, dtype=torch.uint8, device=device) for _ in range(self.count)]
        distributed.all_gather(shares, torch.nn.functional.pad(own, (0, longest - len(own))))
        files = [share[: int(size)].cpu().numpy().tobytes() for share, size in zip(shares, sizes, strict=True)]
        return [torch.load(io.BytesIO(file), map_location="cpu", weights_only=True) for file in files]

    def sum(self, value: torch.Tensor) -> torch.Tensor:
        """The sum over all ranks, without waiting for a GPU."""
        if self.count == 1:
            return value
        from torch import distributed

        value = value.clone()
        distributed.all_reduce(value)
        return value


ALONE = Rank()
