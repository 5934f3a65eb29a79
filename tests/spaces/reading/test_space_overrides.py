"""`path=value` on the command line replaces a value of a file."""

import re
from pathlib import Path

import pytest

from search.arguments import absolute_paths
from spaces.load import load_space
from spaces.parameters.domains import Uniform
from training.errors import UserError

SEARCHED = (
    "optimizer: {choice: [{name: sgd, lr: 0.1}, {name: momentum, lr: 0.1}]}\ndata: {name: cifar10, split_seed: 3}"
)


def test_values_are_yaml(load):
    space = load(
        SEARCHED,
        overrides=(
            "label_smoothing.alpha={uniform: [0, 0.2]}",
            "search.trials=20",
            "recipe.epochs=3",
            "unfreeze={level: last}",
            "data.train_size=null",
            "gradient_clipping.value=1e-3",
        ),
    )
    assert space.recipe["label_smoothing"] == {"alpha": Uniform(0, 0.2)}
    assert space.search.trials == 20
    assert space.recipe["epochs"] == 3
    assert space.recipe["unfreeze"] == {"level": "last"}
    assert space.recipe["data"] == {"name": "cifar10", "split_seed": 3, "train_size": None}
    assert space.recipe["gradient_clipping"] == {"value": 0.001}


def test_a_tilde_alone_is_the_home_folder_and_not_null(load):
    space = load(SEARCHED, overrides=("data={name: image_folder, root: photos}", "data.root=~"))
    assert space.recipe["data"]["root"] == "~"
    assert absolute_paths(space).recipe["data"]["root"] == str(Path.home())


def test_the_last_override_of_a_path_counts(load):
    assert load("epochs: 3", overrides=("epochs=4", "epochs=5")).recipe["epochs"] == 5


def test_overrides_are_checked_together(load):
    space = load(SEARCHED, overrides=("data.name=image_folder", "data.root=photos"))
    assert space.recipe["data"] == {"name": "image_folder", "split_seed": 3, "root": "photos"}
    space = load(SEARCHED, overrides=("optimizer={name: adam}", "optimizer.beta1=0.8"))
    assert space.recipe["optimizer"] == {"name": "adam", "beta1": 0.8}


def test_a_technique_that_the_file_leaves_out_keeps_its_default_kind(load):
    assert load("epochs: 3", overrides=("optimizer.lr=1.0",)).recipe["optimizer"] == {"name": "momentum", "lr": 1.0}
    scheduler = load("epochs: 9", overrides=("search.scheduler.min_epochs=3",)).search.scheduler
    assert (scheduler.name, scheduler.min_epochs) == ("asha", 3)


def test_a_whole_choice_can_be_replaced(load):
    space = load(SEARCHED, overrides=("optimizer={name: sgd, lr: 0.1}",))
    assert space.recipe["optimizer"] == {"name": "sgd", "lr": 0.1}


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("optimizer.lr=0.3", "optimizer.lr=0.3: optimizer is a choice"),
        ("optimizer.lr=0.3", "as in optimizer={name: sgd, lr: 0.3}"),
        ("optimizer.momentum=0.5", "as in optimizer={name: momentum, momentum: 0.5}"),
        ("optimizer.lrr=0.3", "optimizer has no lrr; it has name, lr, weight_decay, "),
        ("optimizer.lrr=0.3", "Did you mean lr?"),
        ("optimiser.lr=0.3", "optimiser.lr=0.3: a recipe has no optimiser"),
        ("optimiser.lr=0.3", "Did you mean optimizer?"),
        ("mixup.alhpa=0.3", "mixup.alhpa=0.3: mixup has no alhpa; it has alpha. Did you mean alpha?"),
        ("mixup.alpha=-1", "mixup.alpha=-1: input should be greater than or equal to 0"),
        ("mixup.alpha={uniform: [1, 0]}", "mixup.alpha={uniform: [1, 0]}: its low end 1 is above its high end 0"),
        ("search.trials=0", "search.trials=0: input should be greater than or equal to 1"),
        (
            "search.trails=1",
            "search has no trails; it has trials, metric, score, sampler, scheduler, baseline, probe_size. "
            "Did you mean trials?",
        ),
        ("data.name=image_folder", "data={name: image_folder, root: ...}"),
        (
            "data.name=digitz",
            "data.name=digitz: there is cifar10, cifar100, digits, image_folder, manifest, parquet, webdataset. "
            "Did you mean digits?",
        ),
        ("epochs", "epochs: an override is path=value"),
        ("=3", "an override is path=value"),
        ("epochs.=3", "an override is path=value"),
        ("epochs=[3", "epochs=[3: this is not YAML"),
        ("epochs=", "epochs=null: input should be a whole number"),
        ("epochs.length=3", "epochs takes a value or a domain, and length is neither"),
        ("search=3", "search=3: search takes a mapping"),
    ],
)
def test_a_mistake_names_the_override(load, override, words):
    with pytest.raises(UserError, match=re.escape(words)) as error:
        load(SEARCHED, overrides=(override,))
    assert "my.yaml" not in str(error.value)


def test_fields_of_the_previous_kind_are_named_with_a_correction(load):
    recipe = "optimizer: {name: momentum, lr: 0.1, momentum: 0.8}"
    words = "optimizer.name=adam: adam has no momentum, which "
    with pytest.raises(UserError, match=re.escape(words)) as error:
        load(recipe, overrides=("optimizer.name=adam",))
    assert "my.yaml:3 sets. Set the whole of it: optimizer={name: adam, lr: 0.1}." in str(error.value)


def test_a_field_of_a_plain_value_cannot_be_set(load):
    with pytest.raises(UserError, match="epochs is 3, a value that has no fields"):
        load("epochs: 3", overrides=("epochs.x=1",))
    with pytest.raises(UserError, match=re.escape("replace the whole domain, as in mixup.alpha={uniform: [0, 1]}")):
        load("mixup: {alpha: {uniform: [0, 2]}}", overrides=("mixup.alpha.uniform=[0, 1]",))


def test_a_mistake_in_the_file_keeps_its_line_although_there_is_an_override(load):
    with pytest.raises(UserError, match=r"my\.yaml:4: mixup has no alhpa"):
        load("epochs: 3\nmixup: {alhpa: 1}", overrides=("epochs=4",))


def test_a_bundled_space_accepts_own_images():
    space = load_space("card", ["data.name=image_folder", "data.root=photos", "search.trials=20"])
    assert space.recipe["data"] == {"name": "image_folder", "root": "photos"}
    assert space.name == "card"


def test_the_format_and_a_field_of_the_search_are_no_fields_of_a_recipe(load):
    with pytest.raises(UserError, match=r"^format=2: the format belongs to the file and cannot be set here\."):
        load("epochs: 3", overrides=("format=2",))
    with pytest.raises(UserError, match=r"^trials=4: a recipe has no trials\. Did you mean search\.trials=4\?"):
        load("epochs: 3", overrides=("trials=4",))
