"""The rules of the presets: what each choice follows from."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from search.presets.make import _count_fitting
from search.presets.rules import (
    EMBEDDED,
    LADDER,
    PRESETS,
    DataFacts,
    LocalMachine,
    choose_batch,
    choose_epochs,
    choose_side,
    first_rung,
    read_machine,
)
from search.presets.space_text import Draft, write_space
from spaces.load import load_space, parse_space
from spaces.parameters.domains import Choice, find_parameters
from training.contract.specs import Backbone
from training.data.sources.image_folder import ImageFolder
from training.process.resources import Resources

SMALL = DataFacts(255, 45, 5, 51, 51, 32)
LARGE = DataFacts(50_000, 5_000, 100, 500, 500, 480)
LAPTOP = LocalMachine(2, 0, 0.0, 2, Resources(), "32-true")


def with_gpu(gib):
    return LocalMachine(16, 1, gib, 1, Resources(8, 8, "cuda"), "bf16-mixed")


def choose(preset="good", data=SMALL, machine=LAPTOP, backbone=EMBEDDED, **more):
    values = {"reason": "small", "side": 32, "batch": 8, "epochs": 20} | more
    return Draft(PRESETS[preset], ImageFolder(root="/photos: my"), data, machine, backbone, **values)


@pytest.mark.parametrize(("bfloat16", "precision"), [(True, "bf16-mixed"), (False, "32-true")])
def test_a_cpu_trains_in_bfloat16_where_it_has_the_arithmetic(monkeypatch, bfloat16, precision):
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: {"avx512_bf16": bfloat16, "avx512_f": True})
    monkeypatch.setattr("torch.backends.mkldnn.is_available", lambda: True)
    assert read_machine(ImageFolder(root="photos"), None, 0).precision == precision


def test_a_better_preset_and_a_larger_device_begin_with_a_larger_backbone():
    def names(machine):
        return [LADDER[first_rung(preset, machine)] for preset in PRESETS.values()]

    assert names(LAPTOP) == ["mobilenetv3_large_100", "mobilenetv3_large_100", "convnext_nano"]
    assert names(with_gpu(8)) == ["mobilenetv3_large_100", "convnext_nano", "convnext_tiny"]
    assert names(with_gpu(80)) == ["convnext_nano", "convnext_tiny", "convnext_small"]


def test_few_images_get_small_batches_and_many_epochs():
    assert (choose_batch(SMALL), choose_batch(LARGE)) == (16, 64)
    assert [choose_epochs(preset, SMALL, 16) for preset in PRESETS.values()] == [15, 40, 80]
    assert [choose_epochs(preset, LARGE, 64) for preset in PRESETS.values()] == [3, 5, 10]
    assert [choose_epochs(preset, SMALL, 8, has_weights=True) for preset in PRESETS.values()] == [10, 10, 10]
    assert [choose_epochs(preset, LARGE, 64, has_weights=True) for preset in PRESETS.values()] == [3, 5, 10]


def test_small_images_are_enlarged_to_four_or_six_times_their_side_and_not_to_that_of_the_weights():
    pretrained = Backbone(name="convnext_nano")
    assert (choose_side(SMALL, pretrained, 224), choose_side(SMALL, pretrained, 224, 6)) == (128, 192)
    assert choose_side(LARGE, pretrained, 224) == 224
    assert choose_side(SMALL, EMBEDDED, None) == 32
    assert choose_side(LARGE, EMBEDDED, None) == 64
    assert choose_side(LARGE, Backbone(name="resnet18", weights="none"), None) == 224


def test_more_time_and_more_places_give_more_trials():
    def count(seconds, slots, epoch_seconds=1.0):
        draft = choose(machine=replace(LAPTOP, slots=slots))
        timed = replace(draft, epoch_seconds=epoch_seconds, setup_seconds=1.0, epochs=10)
        return _count_fitting(timed, seconds)

    assert [count(620, 2), count(620, 1), count(80, 1), count(10, 1)] == [160, 80, 8, 0]
    assert count(620, 1, float("inf")) == 0


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("data", [SMALL, LARGE, DataFacts(900, 90, 2, 800, 100, 300)])
@pytest.mark.parametrize("backbone", [EMBEDDED, Backbone(name="convnext_tiny")])
def test_every_written_space_loads_and_its_baseline_is_a_recipe(preset, data, backbone):
    space = parse_space(write_space(choose(preset, data, backbone=backbone), ["Why."]), "made.yaml")
    baseline = space.baselines()[0]
    assert baseline.data.root == "/photos: my"
    assert (baseline.backbone, baseline.epochs, baseline.batch_size) == (backbone, 20, 8)
    assert baseline.flip.probability == 0.5
    assert space.search.metric == ("val_soft_balanced_accuracy" if data.classes == 2 else "val_soft_accuracy")
    assert [recipe for recipe in space.baselines()[:1] if space.encode(recipe) is None] == []


@pytest.mark.parametrize(
    ("preset", "data", "machine", "backbone"),
    [
        ("fast", SMALL, LAPTOP, EMBEDDED),
        ("best", DataFacts(2900, 290, 2, 2800, 100, 300), with_gpu(80), Backbone(name="convnext_tiny")),
    ],
)
def test_a_written_space_equals_the_one_that_was_written_by_hand(preset, data, machine, backbone):
    text = write_space(choose(preset, data, machine, backbone), [])
    assert parse_space(text, "made.yaml") == load_space(Path(__file__).parent / "spaces" / f"{preset}.yaml")


@pytest.mark.parametrize(("images", "keeps"), [(900, True), (9000, False)])
def test_with_few_images_batch_norm_keeps_the_statistics_of_the_pretraining(images, keeps):
    data = DataFacts(images, 90, 2, images // 2, images // 2, 300)
    space = parse_space(
        write_space(choose("good", data, backbone=Backbone(name="resnet18"), has_batch_norm=True), []), "made.yaml"
    )
    baseline, probe = space.baselines()[0], space.probe()
    assert (baseline.unfreeze.level, baseline.unfreeze.freeze_batch_norm) == ("full", keeps)
    assert baseline.linear_probe.c == "auto"
    assert probe.channels_last.enabled
    assert [recipe for recipe in (baseline, probe) if space.encode(recipe) is None] == [probe]
    without = parse_space(write_space(choose("good", data, backbone=Backbone(name="resnet18")), []), "made.yaml")
    assert not without.baselines()[0].unfreeze.freeze_batch_norm


def test_the_reasons_stand_above_the_choices():
    text = write_space(choose("best", DataFacts(900, 90, 2, 800, 100, 300)), ["First: a note.", "Second " * 20])
    assert text.startswith("# First: a note.\n# Second Second")
    lines = [line.strip() for line in text.splitlines()]
    above = {line.partition(":")[0]: before for before, line in reversed([*pairwise(lines)])}
    assert above["format"].startswith("#   Second")
    assert above["backbone"] == "# small."
    assert above["preprocessing"] == "# The images have 300 pixels on the shorter side."
    assert above["epochs"] == "# An epoch has 112 steps."
    assert above["metric"] == "# One class has 800 images and another 100."
    assert above["unfreeze"].startswith("# How much of the model is trained")
    assert above["flip"].startswith("# Set the probability to 0.0")
    assert above["baseline"].startswith("# The first trials")


def test_a_better_preset_searches_more():
    counts = [
        len(list(find_parameters(parse_space(write_space(choose(preset), []), "made.yaml").recipe)))
        for preset in PRESETS
    ]
    assert counts == sorted(set(counts))


@pytest.mark.parametrize(("backbone", "more"), [(EMBEDDED, True), (Backbone(name="convnext_tiny"), False)])
def test_the_few_steps_that_few_images_get_from_pretrained_weights_have_the_techniques_of_good(backbone, more):
    spaces = [
        parse_space(write_space(choose(preset, SMALL, backbone=backbone), []), "made.yaml")
        for preset in ("good", "best")
    ]
    good, best = ({steps[0] for steps, _ in find_parameters(space.recipe)} for space in spaces)
    assert best - good == ({"cutmix", "random_erasing", "layer_decay", "averaging"} if more else set())
    assert isinstance(spaces[1].recipe["optimizer"], Choice) is more
    assert ("mixup" in good) is more
    assert more or spaces[0].recipe["linear_probe"] == {"c": "auto"}


@pytest.mark.parametrize("epochs", [4, 20])
def test_few_epochs_from_the_probe_have_no_crops(epochs):
    draft = replace(choose("fast", LARGE, backbone=Backbone(name="convnext_tiny")), epochs=epochs)
    space = parse_space(write_space(draft, []), "made.yaml")
    assert ("random_crop" in space.recipe) == (epochs == 20)
    assert (space.baselines()[0].random_crop.name == "none") == (epochs == 4)
    assert space.search.scheduler.min_epochs == 2
    good = parse_space(write_space(replace(draft, preset=PRESETS["good"]), []), "made.yaml")
    assert isinstance(good.recipe["linear_probe"]["c"], Choice) == (epochs == 20)  # else all start at the probe


@pytest.mark.parametrize("preset", PRESETS)
def test_what_helps_every_fine_tuning_from_the_probe_is_in_the_first_one_and_searched_where_there_is_time(preset):
    space = parse_space(write_space(choose(preset, LARGE, backbone=Backbone(name="convnext_tiny")), []), "made.yaml")
    first = space.baselines()[0]
    assert (first.gradient_clipping.value, first.label_smoothing.alpha, first.head_dropout.rate) == (1.0, 0.1, 0.3)
    held = {"label_smoothing", "head_dropout"}
    searched = {steps[0] for steps, _ in find_parameters(space.recipe)} & {*held, "gradient_clipping"}
    assert searched == (set() if preset == "fast" else held)
