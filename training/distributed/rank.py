"""The number of this process among those that train one recipe together, and the exchange of values between them."""

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
    """The process of one device, `number` of `count`. All ranks must call `gather` and `sum`, in the same order."""

    number: int = 0
    count: int = 1

    @property
    def leads(self) -> bool:
        """Whether this is the process that called `train`: only that one writes files and reports."""
        return self.number == 0

    def share(self, things: Sequence[T]) -> Sequence[T]:
        """Return this rank's share of some items; the sizes of the shares differ by at most one."""
        return things[self.number :: self.count]

    def join(self, shares: Sequence[torch.Tensor]) -> torch.Tensor:
        """Put the shares of all ranks, each of shape (N_rank, …), back into the original order: (N, …)."""
        import torch

        whole = torch.empty(sum(map(len, shares)), *shares[0].shape[1:], dtype=shares[0].dtype)
        for number, share in enumerate(shares):
            whole[number :: self.count] = share
        return whole

    def gather(self, value: T) -> list[T]:
        """Return the value of each rank, by number. Only plain values and tensors: nothing is unpickled."""
        if self.count == 1:
            return [value]
        import torch
        from torch import distributed

        file = io.BytesIO()
        torch.save(value, file)
        device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
        local = torch.frombuffer(file.getbuffer(), dtype=torch.uint8).to(device)
        sizes = [torch.empty(1, dtype=torch.int64, device=device) for _ in range(self.count)]
        distributed.all_gather(sizes, torch.tensor([len(local)], device=device))
        longest = max(int(size) for size in sizes)
        shares = [torch.empty(longest, dtype=torch.uint8, device=device) for _ in range(self.count)]
        distributed.all_gather(shares, torch.nn.functional.pad(local, (0, longest - len(local))))
        files = [share[: int(size)].cpu().numpy().tobytes() for share, size in zip(shares, sizes, strict=True)]
        return [torch.load(io.BytesIO(file), map_location="cpu", weights_only=True) for file in files]

    def sum(self, value: torch.Tensor) -> torch.Tensor:
        """Return the sum over all ranks, without waiting for a GPU."""
        if self.count == 1:
            return value
        from torch import distributed

        value = value.clone()
        distributed.all_reduce(value)
        return value


ALONE = Rank()
