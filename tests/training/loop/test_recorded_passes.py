"""When the passes of a model are recorded and kept; `make gpu` tests that a recording trains the same."""

from types import SimpleNamespace

import pytest
import torch

import training.loop.recorded_passes as recorded_passes
from training.data.load_data import load_data
from training.distributed.rank import ALONE
from training.loop.recorded_passes import MEASURED, SETTLING, RecordedPasses, may_record
from training.recipe import read_recipe
from training.resolve import resolve_recipe
from training.train import prepare

TINY = {
    "data": {"name": "digits", "train_size": 64},
    "backbone": {"name": "test_resnet", "weights": "none"},
    "batch_size": 16,
    "epochs": 100,
    "optimizer": {"name": "momentum", "lr": 0.01},
}


def make_classifier(**values):
    recipe = read_recipe({**TINY, **values})
    data = load_data(recipe.data)
    return prepare(data, "cpu", ALONE, resolve_recipe(recipe, data, "cpu"))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, True),
        ({"unfreeze": {"level": "last"}}, True),
        ({"mixup": {"alpha": 0.4}, "head_dropout": {"rate": 0.3}}, True),
        ({"accumulation": {"batches": 2}}, False),
        ({"accumulation": {"schedule": [[50, 2]]}}, False),
        ({"activation_checkpointing": {"enabled": True}}, False),
        ({"compilation": {"backend": "aot_eager"}}, False),
        ({"progressive_resizing": {"start": 0.5}}, False),
        ({"sam": {"name": "sam"}}, False),
    ],
)
def test_passes_that_are_the_same_in_each_step_may_be_recorded_on_a_gpu(values, expected):
    classifier = make_classifier(**values)
    assert not may_record(classifier.recipe, classifier.plan)
    vars(classifier.plan)["device"] = "cuda"
    assert may_record(classifier.recipe, classifier.plan) == expected


def test_a_backbone_of_the_users_own_is_not_recorded_because_it_may_compute_on_the_host():
    classifier = make_classifier()
    vars(classifier.plan)["device"] = "cuda"
    own = classifier.recipe.backbone.model_copy(update={"source": "own"})
    assert not may_record(classifier.recipe.model_copy(update={"backbone": own}), classifier.plan)


class Replayed:
    """Stands for a recording: gives logits that no model gives, and changes statistics as its warm-up does."""

    def __init__(self, compute, inputs, weights):
        self.inputs = inputs
        compute(inputs)

    def run(self, inputs):
        return torch.full((len(inputs), 10), 7.0)


@pytest.fixture
def passes(monkeypatch):
    """RecordedPasses with a clock, and a function that trains steps of given seconds and returns their logits."""
    clock = SimpleNamespace(now=0.0)
    names = {"synchronize": None, "max_memory_allocated": 0, "get_rng_state": None, "set_rng_state": None}
    for name, value in names.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    monkeypatch.setattr(recorded_passes, "read_gpu_limit", lambda: 1.0)
    monkeypatch.setattr(recorded_passes.time, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(recorded_passes, "Recording", Replayed)
    classifier = make_classifier(backbone={"name": "resnet18", "weights": "none"}).train()
    passes = RecordedPasses()

    def train(count, seconds, size=16):
        found = []
        for _ in range(count):
            passes.on_train_batch_start(None, classifier)
            inputs = torch.zeros(size, 3, 32, 32)
            found.append(passes.compute(classifier.model, classifier.model, inputs))
            clock.now += seconds
            passes.on_train_batch_end(None, classifier)
        return found

    passes.on_train_epoch_start(SimpleNamespace(current_epoch=0), classifier)
    return SimpleNamespace(passes=passes, train=train, classifier=classifier)


def is_replayed(logits):
    return bool((logits == 7).all())


def test_a_recording_that_is_faster_is_kept_and_a_slower_one_is_not(passes):
    for seconds, expected in ((0.5, True), (0.99, False)):
        passes.passes.kind = None
        passes.passes.on_train_epoch_start(SimpleNamespace(current_epoch=0), passes.classifier)
        usual = passes.train(SETTLING + MEASURED, 1.0)
        assert not any(map(is_replayed, usual))
        assert all(map(is_replayed, passes.train(SETTLING + MEASURED, seconds)))
        assert is_replayed(passes.train(1, seconds)[0]) == expected


def test_a_smaller_batch_is_computed_as_usual(passes):
    passes.train(SETTLING + MEASURED, 1.0)
    assert not is_replayed(passes.train(1, 1.0, size=5)[0])
    assert is_replayed(passes.train(1, 1.0)[0])
    assert not is_replayed(passes.train(1, 1.0, size=5)[0])


def test_recording_leaves_no_trace_in_batch_norms_statistics(passes):
    passes.train(SETTLING + MEASURED, 1.0)
    before = [buffer.clone() for buffer in passes.classifier.model.buffers()]
    passes.train(1, 1.0)
    assert all(map(torch.equal, before, passes.classifier.model.buffers()))


def test_passes_that_cannot_be_recorded_are_computed_as_usual(passes, monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(recorded_passes, "Recording", fail)
    with caplog.at_level("INFO"):
        assert not any(map(is_replayed, passes.train(3 * (SETTLING + MEASURED), 1.0)))
    assert caplog.messages == [
        "The passes of a step cannot be recorded: operation not permitted when stream is capturing"
    ]


def test_a_short_training_is_not_recorded(passes):
    passes.passes.kind = None
    passes.passes.on_train_epoch_start(SimpleNamespace(current_epoch=90), passes.classifier)
    assert not any(map(is_replayed, passes.train(3 * (SETTLING + MEASURED), 1.0)))


def test_other_weights_that_train_are_recorded_anew(passes):
    passes.train(2 * (SETTLING + MEASURED), 1.0)
    next(passes.classifier.model.parameters()).requires_grad_(False)
    passes.passes.on_train_epoch_start(SimpleNamespace(current_epoch=1), passes.classifier)
    assert not is_replayed(passes.train(1, 1.0)[0])
