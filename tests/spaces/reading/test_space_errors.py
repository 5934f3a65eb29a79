"""Every mistake in a space file ends in one sentence with the line, the reason and a correction."""

import os
import re

import pytest

from spaces.load import load_space
from training.errors import UserError

# The recipe's first line is line 3 of the file.
MISTAKES = {
    "misspelt technique": ("mixpu: {alpha: 0.1}", "my.yaml:3: a recipe has no mixpu", "Did you mean mixup?"),
    "misspelt hyperparameter": ("epochs: 3\nmixup:\n  alhpa: 0.1", "my.yaml:5: mixup has no alhpa", "mean alpha?"),
    "misspelt domain": ("mixup: {alpha: {unifrom: [0, 1]}}", "my.yaml:3:", "Did you mean uniform?"),
    "misspelt domain of a technique": ("mixup: {choise: [{alpha: 0}]}", "mixup has no choise", "Did you mean choice?"),
    "misspelt word": ("unfreeze: {level: ful}", "my.yaml:3: unfreeze.level=ful", "'full'", "Did you mean full?"),
    "misspelt kind": ("optimizer: {name: adamm}", "optimizer.name=adamm: there is adafactor,", "Did you mean adam"),
    "misspelt discriminator": ("optimizer: {nmae: adam}", "my.yaml:3: optimizer has no nmae", "Did you mean name?"),
    "misspelt domain of kinds": ("optimizer: {choise: [{name: sgd}]}", "has no choise", "Did you mean choice?"),
    "no kind": ("optimizer: {lr: 0.1}", "optimizer has no name. Add name: one of adafactor"),
    "field of another kind": (
        "optimizer: {name: sgd, momentum: 0.9}",
        "name=sgd has no momentum",
        "to momentum, muon, nest",
    ),
    "required field": ("data: {name: image_folder}", "data.root is missing", "data={name: image_folder, root: ...}"),
    "low above high": ("mixup: {alpha: {uniform: [1, 0.5]}}", "low end 1 is above its high end 0.5. Write [0.5, 1]"),
    "log of zero": ("optimizer: {name: sgd, lr: {log_uniform: [0, 1]}}", "my.yaml:3: optimizer.lr", "no logarithm"),
    "log of a negative": ("optimizer: {name: sgd, lr: {log_uniform: [-1, 1]}}", "-1 has no logarithm"),
    "one bound": ("mixup: {alpha: {uniform: [0.5]}}", "takes two numbers, low and high, as in {uniform: [0.0, 0.3]}"),
    "bound that is text": ("mixup: {alpha: {uniform: [0, a]}}", "takes two numbers"),
    "infinite bound": ("mixup: {alpha: {uniform: [0, .inf]}}", "takes two numbers"),
    "fractions of a whole": ("batch_size: {int_uniform: [1, 2.5]}", "takes whole numbers"),
    "uniform over whole numbers": ("batch_size: {uniform: [1, 64]}", "whole numbers are needed here. Use int_uniform"),
    "illegal end": ("label_smoothing: {alpha: {uniform: [0, 1.0]}}", "its end 1.0 is illegal", "less than 1"),
    "illegal value in a choice": (
        "batch_size:\n  choice:\n    - 16\n    - 0",
        "my.yaml:6: batch_size[1]=0",
        "than or equ",
    ),
    "illegal value in a branch": (
        "mixup:\n  choice:\n    - {alpha: 0}\n    - {alpha: -1}",
        "my.yaml:6: mixup[1].alpha=-1",
    ),
    "illegal fixed value": ("epochs: 0", "my.yaml:3: epochs=0: input should be greater than or equal to 1"),
    "text for a number": ('epochs: "3"', "my.yaml:3: epochs=3: input should be a whole number"),
    "empty choice": ("batch_size: {choice: []}", "an empty choice offers nothing"),
    "choice without a list": ("batch_size: {choice: 3}", "choice takes a list"),
    "duplicated option": ("batch_size: {choice: [16, 32, 16]}", "the option 16 is listed twice"),
    "duplicated branch": (
        "mixup: {choice: [{alpha: {uniform: [0, 1]}}, {alpha: {uniform: [0, 1]}}]}",
        "is listed twice",
    ),
    "two domains in one field": ("mixup: {alpha: {uniform: [0, 1], choice: [1]}}", "one key uniform", "beside choice"),
    "domain for a technique": (
        "mixup: {uniform: [0, 1]}",
        "takes a mapping",
        "Write mixup: {alpha: {uniform: [0, 1]}}",
    ),
    "value for a technique": ("mixup: 0.3", "mixup takes a mapping", "Write mixup: {alpha: 0.3}"),
    "nothing for a technique": ("mixup:", "my.yaml:3: mixup takes a mapping", "not nothing", "mixup: {alpha: 0.0}"),
    "kind with a domain": (
        "optimizer: {name: {choice: [sgd, adam]}}",
        "optimizer.name cannot be searched by itself",
        "{choice: [{name:",
    ),
    "domain in the data": (
        "data: {name: digits, train_size: {choice: [100, 200]}}",
        "data.train_size cannot be searched",
    ),
    "domain for the data": ("data: {choice: [{name: digits}, {name: cifar10}]}", "data cannot be searched"),
    "domain for the seed": ("seed: {int_uniform: [0, 9]}", "my.yaml:3: seed cannot be searched"),
    "mapping for a value": ("epochs: {a: 1}", "my.yaml:3: epochs={a: 1}", "Domains are choice, uniform"),
    "duplicated key": (
        "epochs: 1\nseed: 2\nepochs: 3",
        "my.yaml:5: epochs is set a second time here (first in line 3)",
    ),
    "tab": ("mixup:\n\talpha: 1", "my.yaml:4: this is not YAML"),
    "fixed conflict": ("epochs: 3\nschedule: {name: cosine, warmup_epochs: 5}", "every recipe of this space conflicts"),
    "most draws conflict": (
        "epochs: 3\nschedule: {name: cosine, warmup_epochs: {uniform: [1, 9]}}",
        "of 64 random recipes of this space conflict, most of them so: schedule.warmup_epochs",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_recipe_is_named_with_its_line(load, name):
    recipe, *words = MISTAKES[name]
    with pytest.raises(UserError, match=r"my\.yaml") as error:
        load(recipe)
    for word in words:
        assert word in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("search", "words"),
    [
        ("{trials: 0}", "my.yaml:4: search.trials=0: input should be greater than or equal to 1"),
        ("{metric: val_acc}", "'val_accuracy', 'val_balanced_accuracy', 'val_soft_accuracy'"),
        ("{sampler: tpee}", "Did you mean tpe?"),
        (
            "{trails: 3}",
            "search has no trails; it has trials, metric, score, sampler, scheduler, baseline, probe_size. "
            "Did you mean trials?",
        ),
        ("{trials: {choice: [1, 2]}}", "search.trials cannot be searched"),
        ("{scheduler: none}", "Write search.scheduler: {name: none}"),
        ("{scheduler: {name: asha, reduction_factor: 1}}", "reduction_factor=1: input should be greater than or equal"),
        (
            "{scheduler: {name: none, min_epochs: 1}}",
            "with name=none has no min_epochs; it has name. It belongs to asha",
        ),
        ("{scheduler: {min_epochs: 1}}", "search.scheduler has no name"),
        ("{scheduler: {name: asha, kind: halt}}", "search.scheduler with name=asha has no kind"),
        ("[1]", "search takes a mapping"),
        (
            "{probe_size: 64}",
            "my.yaml:4: search.probe_size: this space has no linear probe. Add linear_probe: {c: auto}",
        ),
    ],
)
def test_a_mistake_in_the_search_is_named_with_its_line(load, search, words):
    with pytest.raises(UserError, match=re.escape(words)):
        load("epochs: 3", f"search: {search}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the file is empty"),
        ("# only a comment\n", "the file is empty"),
        ("format: 1\nrecipe: {epochs: [1\n", "my.yaml:3: this is not YAML"),
        ("format: 1\nrecipe: {epochs: *three}\n", "my.yaml:2: this is not YAML: found undefined alias"),
        ("format: 1\nrecipe: &a {mixup: *a}\n", "nested more than 50 levels deep, or inside itself"),
        ("format: 1\nrecipe: {}\n---\nformat: 1\n", "my.yaml:3: this is not YAML"),
        ("format: 1\n? [1]\n: 2\n", "my.yaml:2: a key must be a name"),
        ("epochs\n", "a space is a mapping. Begin it with `format: 1`"),
        ("recipe: {}\n", "has no format. Add the line `format: 1`"),
        ("format: 2\nrecipe: {}\n", "my.yaml:1: format=2 is not known to this version, which reads format 1"),
        ("format: true\nrecipe: {}\n", "format=true is not known"),
        ("format: 1\n", "the file has no recipe"),
        (
            "format: 1\nrecipes: {}\n",
            "my.yaml:2: there is no recipes in a space",
        ),
        ("format: 1\nrecipe: {choice: [{epochs: 1}, {epochs: 2}]}\n", "my.yaml:2: recipe takes a mapping"),
    ],
)
def test_a_file_that_is_no_space_is_refused(tmp_path, text, words):
    path = tmp_path / "my.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=re.escape(words)):
        load_space(path)


def test_a_file_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "my.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"my\.yaml: the file is not text in UTF-8"):
        load_space(tmp_path / "my.yaml")


def test_a_folder_in_place_of_a_file_is_refused(tmp_path):
    (tmp_path / "recipe.yaml").write_text("format: 1\nrecipe: {}\n")
    with pytest.raises(
        UserError, match=r"this is a folder, not a file\. Name the file in it, such as .*recipe\.yaml\."
    ):
        load_space(tmp_path)


LAUGHS = ["a0: &a0 [0, 0]", *(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 40))]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("format: 1\nrecipe: " + "[" * 3000 + "]" * 3000, "nested more than 50 levels deep"),
        ("format: 1\nrecipe:\n" + "".join(f"{'  ' * i}a:\n" for i in range(1, 400)), "nested more than 50 levels deep"),
        ("format: 1\nrecipe: &me {a: *me}\n", "nested more than 50 levels deep, or inside itself"),
        ("\n".join(LAUGHS), "more than 100,000 values, with those that its aliases"),
        ("format: 1\nrecipe: {}\n" + "# much\n" * 50_000, r"the file has 0\.4 MB"),
        ("format: 1\nrecipe: {epochs: !!int three}\n", "three cannot be read as a value of type int"),
        ("format: 1\nrecipe: {epochs: !!int ''}\n", "cannot be read as a value of type int"),
        ("format: 1\nrecipe: {flip: {probability: !!bool maybe}}\n", "maybe cannot be read as a value of type bool"),
        (f"format: 1\nrecipe: {{epochs: {'9' * 5000}}}\n", "cannot be read as a value of type int"),
    ],
    ids=[
        "deep",
        "deep in lines",
        "inside itself",
        "a billion laughs",
        "large",
        "no number",
        "empty",
        "no truth",
        "5,000 digits",
    ],
)
def test_a_file_that_would_need_too_much_time_or_memory_is_refused(tmp_path, text, words):
    (tmp_path / "my.yaml").write_text(text)
    with pytest.raises(UserError, match=rf"my\.yaml: .*{words}") as caught:
        load_space(tmp_path / "my.yaml")
    assert len(str(caught.value)) < 1000


def test_an_override_that_nests_without_end_is_refused(load):
    with pytest.raises(UserError, match="nested more than 50 levels deep"):
        load("epochs: 3", overrides=("epochs=" + "[" * 3000 + "]" * 3000,))


def test_a_pipe_in_place_of_a_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "my.yaml")
    with pytest.raises(UserError, match="a pipe or a device, not a file"):
        load_space(tmp_path / "my.yaml")


def test_the_message_about_a_missing_file_suggests_the_nearest_name(tmp_path):
    (tmp_path / "flowers.yaml").write_text("format: 1\nrecipe: {}\n")
    with pytest.raises(UserError, match=r"no such file\. Did you mean .*flowers\.yaml\?"):
        load_space(tmp_path / "flower.yaml")


def test_an_unknown_bundled_name_lists_the_bundled_ones():
    with pytest.raises(
        UserError,
        match=r"quik: no folder has this name, and there is no such space\. Did you mean quick\? Bundled are card",
    ):
        load_space("quik")


def test_epochs_below_the_first_rung_are_refused(load):
    sentence = (
        "epochs=1 is below search.scheduler.min_epochs=3: no trial could reach the first rung. "
        "Raise epochs or lower min_epochs."
    )
    asha = "search: {scheduler: {name: asha, min_epochs: 3}}"
    with pytest.raises(UserError, match=re.escape(f"my.yaml:4: {sentence}")):
        load("epochs: 1", asha)
    with pytest.raises(UserError, match=re.escape(sentence)):
        load("epochs: {choice: [9, {int_uniform: [1, 3]}]}", asha)
    assert load("epochs: {int_uniform: [3, 9]}", asha).count() == 7
    assert load("epochs: 1", "search: {scheduler: {name: none}}")


def test_a_grid_over_a_continuous_domain_is_refused(load):
    with pytest.raises(UserError, match=r"my\.yaml:4: mixup\[1\]\.alpha is continuous .* give it a choice"):
        load("mixup: {choice: [{alpha: 0}, {alpha: {uniform: [0.1, 1]}}]}", "search: {sampler: grid}")


def test_a_grid_too_large_to_list_is_refused(load):
    with pytest.raises(UserError, match="would list 1,000,000 combinations"):
        load("batch_size: {int_uniform: [1, 1000000]}", "search: {sampler: grid}")
