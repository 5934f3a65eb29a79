"""The memory of a GPU that several trainings share."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import threading
import weakref

import pytest
import torch

import training.train
from training.process import resources
from training.process.isolation import isolated_process
from training.process.resources import Resources, limit_memory


def test_a_process_may_fill_its_share_of_a_gpu_and_on_a_cpu_nothing_is_limited(monkeypatch):
    limits = []
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", limits.append)
    monkeypatch.setattr(resources, "read_gpu_mb", lambda: 6000.0)
    limit_memory("cuda", 0.25)
    limit_memory("cuda", 1.0)
    limit_memory("cpu", 0.25)
    assert limits == [pytest.approx(0.25 - 0.1), 1.0]  # a tenth is for CUDA itself


def test_a_training_limits_itself_before_it_fills_memory(tiny_recipe, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(training.train, "limit_memory", lambda *arguments: calls.append(arguments))
    monkeypatch.setattr(training.train, "_train", lambda *arguments: calls.append("trained"))
    training.train.train(tiny_recipe(), tmp_path, resources=Resources(gpu_share=0.5))
    assert calls == [("cpu", 0.5), "trained"]


def test_a_worker_holds_nothing_after_a_trial_that_it_did_not_hold_before(fit):
    def held():
        gc.collect()
        tensors = sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())
        return tensors, len(os.listdir("/proc/self/fd")), threading.active_count()

    recipe = {"averaging": {"name": "ema"}, "mixup": {"alpha": 0.2}, "unfreeze": {"level": "most"}}
    fit(**recipe)  # loads what every later training uses
    before = held()
    for _ in range(3):
        fit(**recipe)
    assert held() == before


def test_an_isolation_within_another_one_scans_only_what_came_after_the_first():
    with isolated_process(0, 1):
        frozen = gc.get_freeze_count()
        made = type("Made", (), {})  # a class is in cycles of its own
        seen = weakref.ref(made)
        with isolated_process(0, 1):
            del made
        assert seen() is None
        assert gc.get_freeze_count() > frozen / 2  # some have ended by themselves
    assert gc.get_freeze_count() < frozen / 2


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"), reason="the C library is not glibc")
def test_a_step_takes_the_memory_that_the_step_before_it_has_freed():
    def count_new_pages():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(5):
            torch.ones(2**24)  # 64 MiB, in 16,384 pages
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    with isolated_process(0, 1):
        count_new_pages()
        assert count_new_pages() < 16_384
