"""Techniques that change only the speed of a training."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.utils import counters

import training.techniques.compute.compilation as compilation
from training.callbacks.resizing import BatchResizing
from training.contract.setup import TrainingSetup
from training.errors import UserError
from training.loop.classifier import Classifier
from training.process.isolation import isolated_process
from training.techniques.compute.cudnn_benchmark import CudnnBenchmark


def test_channels_last_is_the_layout_of_every_convolution_in_training_and_validation(fit, monkeypatch, load_weights):
    layouts = {"training": set(), "validation": set()}

    def watch(step, phase):
        def run(self, *arguments):
            seen = layouts[phase]
            convolutions = [module for module in self.model.modules() if isinstance(module, torch.nn.Conv2d)]
            hooks = [
                convolution.register_forward_hook(
                    lambda module, inputs, output: seen.add(output.is_contiguous(memory_format=torch.channels_last))
                )
                for convolution in convolutions
                if convolution.out_channels > 1
            ]
            result = step(self, *arguments)
            for hook in hooks:
                hook.remove()
            return result

        return run

    monkeypatch.setattr(Classifier, "training_step", watch(Classifier.training_step, "training"))
    monkeypatch.setattr(Classifier, "validation_step", watch(Classifier.validation_step, "validation"))
    options = {"epochs": 1, "precision": {"mode": "64-true"}}  # in 32-true a few steps make rounding visible
    run = fit(**options, channels_last={"enabled": True})
    assert layouts == {"training": {True}, "validation": {True}}
    monkeypatch.undo()
    plain = fit(**options)
    assert run.metrics[0] == pytest.approx(plain.metrics[0], rel=1e-9)
    assert load_weights(run.folder, "best").keys() == load_weights(plain.folder, "best").keys()


def test_a_compiled_model_trains_as_itself_and_keeps_its_names(fit, load_weights):
    counters.clear()
    options = {"epochs": 1, "activation_checkpointing": {"enabled": True}}
    compiled = fit(**options, compilation={"backend": "aot_eager"})
    assert counters["stats"]["unique_graphs"] >= 1
    assert not counters["graph_break"]
    plain = fit(**options)
    assert compiled.metrics[0]["train_loss"] == pytest.approx(plain.metrics[0]["train_loss"], rel=1e-4)
    for which in ("last", "best"):
        expected, states = load_weights(plain.folder, which), load_weights(compiled.folder, which)
        assert states.keys() == expected.keys()
        assert all(torch.allclose(states[key], expected[key], atol=1e-4) for key in expected), which


@pytest.mark.parametrize("grows", [False, True])
def test_each_batch_size_has_a_graph_of_its_own_unless_images_grow(grows):
    torch._dynamo.reset()  # it remembers sizes of the same layer
    graphs = []

    def record(graph, inputs):
        graphs.append("any size" if any(isinstance(value, torch.SymInt) for value in inputs) else "one size")
        return graph

    setup = TrainingSetup(torch.nn.Flatten(), "cuda", 10, (8, 5), 32)
    if grows:
        setup.callbacks.append(BatchResizing(lambda *_: 32, 32))
    compilation.Compilation.model_construct(backend=record).apply(setup)
    for size in (8, 5, 8):
        setup.model(torch.zeros(size, 3, 4, 4))
    assert graphs == ["one size", "any size" if grows else "one size"]


def test_a_cpu_without_a_compiler_refuses_fused_kernels(monkeypatch, fit):
    monkeypatch.setattr(compilation, "find_compiler", lambda: None)
    with pytest.raises(UserError, match=r"compilation\.backend=inductor needs a C\+\+ compiler on a CPU"):
        fit(compilation={"backend": "inductor"})


def test_cudnn_benchmark_is_refused_on_a_cpu(fit):
    with pytest.raises(UserError, match=r"cudnn_benchmark\.enabled=true needs a GPU"):
        fit(cudnn_benchmark={"enabled": True})


def test_cudnn_benchmark_ends_with_its_training():
    import lightning.pytorch as pl

    setup = TrainingSetup(torch.nn.Identity(), "cuda", 10, (4,), 32)
    CudnnBenchmark(enabled=True).apply(setup)
    with isolated_process(0, 1):
        pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, **setup.trainer)
        assert torch.backends.cudnn.benchmark
    assert not torch.backends.cudnn.benchmark
