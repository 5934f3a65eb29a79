"""Copies to the device that do not wait for it."""

from __future__ import annotations

import torch


def upload(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy a tensor to a device; a GPU goes on with what it still has to do.

    A copy from pageable memory would wait for all of that, so such a tensor goes into pinned memory first (CUDA C++
    Programming Guide, "Asynchronous Concurrent Execution").
    """
    if device.type == "cuda" and tensor.is_cpu:
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
