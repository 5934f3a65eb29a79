"""Space files: the bundled ones are valid, every file can be written and read back, and YAML is 1.2."""

from typing import get_args

import pytest

from spaces.load import bundled_names, dump_recipe, load_baseline, load_recipe, load_space
from spaces.parameters.domains import find_parameters
from spaces.parameters.draws import RandomTrial
from spaces.reading.yaml_values import dump_yaml, parse_yaml
from spaces.search import Metric
from training.contract.technique import Technique
from training.errors import UserError
from training.recipe import Recipe, read_recipe
from training.score_metrics import MAXIMISED, MINIMISED


@pytest.mark.parametrize("draws", [100, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", bundled_names())
def test_every_random_draw_of_a_bundled_space_is_valid(name, draws):
    space, trial = load_space(name), RandomTrial(seed=draws)
    for _ in range(draws):
        read_recipe(space.suggest(trial))


@pytest.mark.parametrize("name", bundled_names())
def test_a_space_comes_back_from_its_file(tmp_path, name):
    space = load_space(
        name, ["search.trials=7", "optimizer={name: sgd, weight_decay: 1e-4, lr: {log_uniform: [1e-7, 0.1]}}"]
    )
    (tmp_path / "space.yaml").write_text(space.to_yaml())
    again = load_space(tmp_path / "space.yaml")
    assert again == space
    assert again.to_yaml() == space.to_yaml()


def test_the_quick_space_searches_the_seven_techniques_on_the_demo_data():
    space = load_space("quick")
    searched = {steps[0] for steps, _ in find_parameters(space.recipe)}
    assert searched == {
        "unfreeze", "augmentation", "label_smoothing", "mixup", "precision", "batch_size", "optimizer",
    }  # fmt: skip
    assert space.recipe["data"] == {"name": "digits", "train_size": 20, "epoch_size": 384}
    assert space.search.trials == 16


def test_a_recipe_comes_back_from_its_file_to_the_last_digit(tmp_path):
    path = tmp_path / "recipe.yaml"
    trial = RandomTrial(seed=2)
    space = load_space("card")
    for recipe in [Recipe(), *(read_recipe(space.suggest(trial)) for _ in range(30))]:
        path.write_text(dump_recipe(recipe))
        assert load_recipe(path) == recipe


def test_a_recipe_file_names_every_technique():
    written = parse_yaml(dump_recipe(Recipe()), "default")
    assert written["recipe"].keys() == Recipe.model_fields.keys()


def test_a_recipe_takes_overrides(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(dump_recipe(Recipe()))
    recipe = load_recipe(path, ["optimizer.lr=1e-3", "mixup.alpha=0.5"])
    assert (recipe.optimizer.lr, recipe.mixup.alpha) == (0.001, 0.5)


def test_a_recipe_with_a_domain_is_refused(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("format: 1\nrecipe:\n  epochs: 3\n  mixup:\n    alpha: {uniform: [0, 1]}\n")
    with pytest.raises(
        UserError, match=r"recipe\.yaml:5: mixup\.alpha has a domain \(uniform\), but a recipe has values only"
    ):
        load_recipe(path)
    assert load_recipe(path, ["mixup.alpha=0.5"]).mixup.alpha == 0.5


def test_a_recipe_whose_techniques_conflict_is_refused(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("format: 1\nrecipe: {epochs: 2, schedule: {name: cosine, warmup_epochs: 2}}\n")
    with pytest.raises(UserError, match=r"recipe\.yaml: schedule\.warmup_epochs=2 leaves nothing of epochs=2"):
        load_recipe(path)


def test_yaml_is_read_by_its_version_1_2():
    values = parse_yaml("{a: 1e-3, b: off, c: 012, d: 2024-01-01, e: null, f: true, g: 1.5, h: '1'}", "text")
    assert values == {"a": 0.001, "b": "off", "c": 12, "d": "2024-01-01", "e": None, "f": True, "g": 1.5, "h": "1"}
    assert type(values["a"]) is float


@pytest.mark.parametrize("value", ["off", "1e-3", "null", "true", "", "a: b", "#x", "é", " x ", "1", "[", "a\nb", "~"])
def test_text_comes_back_as_the_same_text(value):
    assert parse_yaml(dump_yaml({"a": {"b": value}}), "text") == {"a": {"b": value}}


@pytest.mark.parametrize("value", [0.1 + 0.2, 1e-05, 1e300, 5e-324, 1 / 3, 100.0, -0.0, 7, None, True, [0.1, 1e-9]])
def test_numbers_come_back_as_the_same_numbers(value):
    assert repr(parse_yaml(dump_yaml({"a": {"b": value}}), "text")) == repr({"a": {"b": value}})


def test_every_metric_has_a_direction():
    assert set(get_args(Metric)) == {*MAXIMISED, *MINIMISED}


def test_every_technique_of_the_recipe_is_searched_in_the_full_space():
    """A new technique needs lines in the full space; otherwise it is never searched."""
    techniques = {name for name, info in Recipe.model_fields.items() if isinstance(info.default, Technique)}
    searched = {steps[0] for steps, _ in find_parameters(load_space("full").recipe)}
    assert techniques - {"distillation"} <= searched  # the path of a teacher is the user's


def test_training_a_space_trains_its_baseline():
    assert load_baseline("quick") == (load_space("quick").baselines()[0], True)
    assert load_baseline("quick", ["optimizer.lr=0.5"])[0].optimizer.lr == 0.5


def test_a_recipe_loads_as_itself(tmp_path):
    (tmp_path / "recipe.yaml").write_text(dump_recipe(Recipe(epochs=3)))
    assert load_baseline(tmp_path / "recipe.yaml") == (Recipe(epochs=3), False)


@pytest.mark.parametrize("override", ["search.trials=4", "search={trials: 4}", " search.sampler=grid"])
def test_an_override_of_the_search_is_refused_when_one_recipe_is_trained(override):
    with pytest.raises(
        UserError, match=r"search.*: this command trains one recipe and does not search\. .* sweep run quick"
    ):
        load_baseline("quick", [override])


def test_a_domain_for_a_value_that_all_trials_share_is_refused():
    with pytest.raises(UserError, match="data cannot be searched"):
        load_baseline("quick", ["data={choice: [{name: digits}, {name: cifar10}]}"])
