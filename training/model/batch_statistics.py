"""BatchNorm's statistics: of a forward pass that should not count, and measured anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


def has_batch_norm(module: nn.Module) -> bool:
    return any(isinstance(inner, _BatchNorm) for inner in module.modules())


@contextmanager
def on_copies_of_statistics(block: nn.Module) -> Iterator[None]:
    """Compute with copies of BatchNorm's statistics, so that they do not count a batch twice."""
    norms = [m for m in block.modules() if isinstance(m, _BatchNorm)]
    kept = [(norm, name, buffer) for norm in norms for name, buffer in norm.named_buffers(recurse=False)]
    for norm, name, buffer in kept:
        setattr(norm, name, buffer.clone())
    try:
        yield
    finally:
        for norm, name, buffer in kept:
            setattr(norm, name, buffer)


@contextmanager
def measuring_statistics(norms: Sequence[_BatchNorm]) -> Iterator[None]:
    """Measure the statistics of some layers of a model in eval mode: their mean over all forward passes inside.

    torch's `update_bn` cannot be used: it overwrites the statistics of all layers and leaves dropout on.
    """
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # None means the plain mean over all batches
        norm.train()
    yield
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()
