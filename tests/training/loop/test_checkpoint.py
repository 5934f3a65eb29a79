"""Writing checkpoints."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch

from training.loop.checkpoint import write_checkpoint
from training.loop.trainer import DirectFile


@pytest.mark.parametrize("write", [write_checkpoint, DirectFile().save_checkpoint])
def test_a_full_disk_is_an_error_of_the_system_so_that_a_sweep_ends_instead_of_its_trial(write):
    with pytest.raises(OSError, match="No space left") as error:
        write({"weights": torch.zeros(100_000)}, Path("/dev/full"))
    assert error.value.errno == errno.ENOSPC


def test_a_training_writes_its_checkpoints_without_lightnings_copy_in_memory(fit, monkeypatch):
    monkeypatch.setattr("lightning.fabric.plugins.io.torch_io._atomic_save", lambda *_: pytest.fail("copied"))
    run = fit()
    assert (run.folder / "last.ckpt").exists()
    assert not list(run.folder.glob("*.partial"))
