"""BatchNorm's statistics during a forward pass that should not count."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


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
