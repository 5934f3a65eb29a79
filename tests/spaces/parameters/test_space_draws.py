"""Draws are define-by-run, named by their branch, and can be undone."""

import itertools
import pickle
from functools import partial

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spaces.load import load_space
from spaces.parameters import conditions
from spaces.parameters.domains import Choice, IntUniform, Uniform
from spaces.parameters.draws import GridTrial, RandomTrial, count, draw, draw_every
from spaces.search import Search
from spaces.space import Space
from training.errors import UserError
from training.recipe import Recipe, flatten, read_recipe

optuna.logging.set_verbosity(optuna.logging.WARNING)

NESTED = """
mixup:
  choice:
    - {alpha: 0.0}
    - {alpha: {log_uniform: [0.1, 2.0]}}
optimizer:
  choice:
    - {name: sgd, lr: {log_uniform: [0.001, 1.0]}}
    - {name: adamw, lr: 0.001, weight_decay: {choice: [0.01, 0.1]}}
label_smoothing: {alpha: {choice: [0.0, {uniform: [0.1, 0.3]}]}}
batch_size: {int_uniform: [8, 11]}
unfreeze: {level: {choice: [last, full]}}
"""


def ask(space: Space, seed: int, times: int) -> list[tuple[dict, dict]]:
    """Return the parameters and the drawn values of random trials."""
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    trials = [study.ask() for _ in range(times)]
    return [(space.suggest(trial), trial.params)[::-1] for trial in trials]


def test_parameter_names_contain_their_branch(load):
    seen = set().union(*(params for params, _ in ask(load(NESTED), 0, 60)))
    assert seen == {
        "mixup",
        "mixup[1].alpha",
        "optimizer",
        "optimizer[sgd].lr",
        "optimizer[adamw].weight_decay",
        "label_smoothing.alpha",
        "label_smoothing.alpha[1]",
        "batch_size",
        "unfreeze.level",
    }


def test_a_parameter_is_drawn_only_in_its_branch(load):
    for params, values in ask(load(NESTED), 1, 60):
        assert ("mixup[1].alpha" in params) == (params["mixup"] == "1") == (values["mixup"]["alpha"] > 0)
        assert ("optimizer[sgd].lr" in params) == (values["optimizer"]["name"] == "sgd")
        assert ("weight_decay" in values["optimizer"]) == (values["optimizer"]["name"] == "adamw")


def test_labels_are_names_else_first_constants_else_positions(load):
    space = load(
        "mixup: {choice: [{alpha: 0.0}, {alpha: {uniform: [0.1, 1]}}]}\n"
        "augmentation: {choice: [{policy: none}, {rotate: 5.0, policy: affine_colour}]}\n"
        "optimizer: {choice: [{lr: 0.1, name: sgd}, {name: sgd, lr: {uniform: [1, 2]}}, {name: adam}]}"
    )
    assert space.recipe["mixup"].labels == ("alpha=0.0", "1")
    assert space.recipe["augmentation"].labels == ("none", "affine_colour")
    assert space.recipe["optimizer"].labels == ("sgd#0", "sgd#1", "adam")


@pytest.mark.parametrize("source", ["quick", "card"])
def test_encoding_a_draw_returns_its_parameters(source):
    space = load_space(source)
    for params, values in ask(space, 2, 100):
        assert space.encode(read_recipe(values)) == params


def test_encoding_a_nested_draw_gives_its_parameters(load):
    space = load(NESTED)
    for params, values in ask(space, 3, 100):
        assert space.encode(read_recipe(values)) == params


CONDITIONAL = """
lora: {choice: [{rank: 0}, {rank: {choice: [4, 16]}}]}
unfreeze: {level: {choice: [last, most, full]}}
layer_decay: {factor: {choice: [1.0, {uniform: [0.5, 0.9]}]}}
mixup: {alpha: {choice: [0.0, 0.4]}}
mixing: {probability: {choice: [0.5, 1.0]}}
"""


def test_an_option_that_conflicts_with_earlier_values_is_not_sampled(load):
    space, seen = load(CONDITIONAL), set()
    for params, values in ask(space, 5, 200):
        recipe = read_recipe(values)  # every recipe is valid
        assert space.encode(recipe) == params
        seen.add((recipe.lora.rank, recipe.unfreeze.level, recipe.layer_decay.is_on, recipe.mixing.is_on))
        # With one option left nothing is sampled; with some options left another parameter is sampled.
        assert ("unfreeze.level" in params) == (recipe.lora.rank == 0)
        assert ("unfreeze.level of last|most" in params) == (recipe.lora.rank > 0)
        assert ("layer_decay.factor" in params) == (recipe.unfreeze.level != "last" or recipe.lora.is_on)
        assert ("mixing.probability" in params) == recipe.mixup.is_on
    assert {rank for rank, level, *_ in seen if level == "full"} == {0}
    levels = itertools.product([4, 16, 0], ["last", "most", "full"])
    assert {(rank, level) for rank, level, *_ in seen} == set(levels) - {(4, "full"), (16, "full")}


def test_parts_that_do_not_read_a_field_need_not_be_asked_about_it(monkeypatch):
    asked, refuses = [], conditions._Drawn.refuses

    def compare(self, field, value):
        found = refuses(self, field, value)
        assert found == conditions._Drawn({**self.fields, field: value})._conflict  # which asks all of them
        asked.append(found)
        return found

    space = load_space("full")
    monkeypatch.setattr(conditions._Drawn, "refuses", compare)
    space.suggest(RandomTrial(0))
    assert len(asked) > 100
    assert 0 < sum(asked) < len(asked)


def test_a_space_with_only_conflicts_is_checked_at_the_draw(load):
    with pytest.raises(UserError, match=r"64 of 64 random recipes .* conflict, most of them so: lora\.rank="):
        load("lora: {rank: {choice: [4, 16]}}\nunfreeze: {level: full}")


@pytest.mark.parametrize(
    "outside",
    [
        {"batch_size": 12},
        {"unfreeze": {"level": "most"}},
        {"mixup": {"alpha": 3.0}},
        {"optimizer": {"name": "adam"}},
        {"optimizer": {"name": "sgd", "lr": 0.1, "weight_decay": 0.1}},
        {"epochs": 11},
        {"gradient_clipping": {"value": 1.0}},
    ],
)
def test_a_recipe_outside_has_no_parameters(load, outside):
    space = load(NESTED)
    inside = {"batch_size": 8, "optimizer": {"name": "sgd", "lr": 0.1}}
    assert space.encode(read_recipe(inside)) is not None
    assert space.encode(read_recipe(inside | outside)) is None


def test_names_of_a_flat_recipe_have_no_brackets(load):
    for _, values in ask(load(NESTED), 4, 20):
        assert [name for name in flatten(values) if "[" in name] == []


TREES = st.recursive(
    st.integers(0, 9) | st.builds(lambda low, size: IntUniform(low, low + size), st.integers(0, 3), st.integers(0, 2)),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(lambda options: Choice(tuple(options)))
        | st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=2)
    ),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None)
@given(TREES.filter(lambda tree: isinstance(tree, dict) and count(tree) < 200))
def test_the_count_equals_the_number_of_points(tree):
    """The points are enumerated only through draws from the trees."""
    space = Space("any", tree, Search())
    points = walk(lambda trial: draw(tree, trial))
    assert space.count() == len(points)
    if len(set(map(repr, points))) == len(points):  # equal options of one choice share a parameter
        assert sorted(map(repr, space.grid())) == sorted(map(repr, points))


def walk(suggest) -> list[dict]:
    class Odometer:
        def __init__(self, prefix):
            self.prefix, self.taken, self.params = prefix, [], {}

        def suggest_categorical(self, name, choices):
            index = self.prefix[len(self.taken)] if len(self.taken) < len(self.prefix) else 0
            self.taken.append((index, len(choices)))
            self.params[name] = choices[index]
            return choices[index]

        def suggest_int(self, name, low, high):
            return self.suggest_categorical(name, range(low, high + 1))

    points, prefix = [], []
    while True:
        trial = Odometer(prefix)
        suggest(trial)
        points.append(trial.params)
        taken = trial.taken
        while taken and taken[-1][0] + 1 == taken[-1][1]:
            taken.pop()
        if not taken:
            return points
        prefix = [index for index, _ in taken[:-1]] + [taken[-1][0] + 1]


def test_the_count_leaves_continuous_domains_out(load):
    assert load(NESTED).count() == 2 * (1 + 2) * 2 * 4 * 2


def test_every_point_of_a_grid_draws_its_own_recipe(load):
    space = load("mixup: {choice: [{alpha: 0.0}, {alpha: {choice: [0.5, 1.0]}}]}\nbatch_size: {int_uniform: [1, 2]}")
    drawn = [space.suggest(optuna.trial.FixedTrial(params)) for params in space.grid()]
    expected = [(a, b) for a, b in itertools.product([0.0, 0.5, 1.0], [1, 2])]
    assert [(values["mixup"]["alpha"], values["batch_size"]) for values in drawn] == expected


def test_a_continuous_domain_cannot_be_listed():
    with pytest.raises(UserError, match=r"a\[1\] is continuous from 0 to 1"):
        list(draw_every(partial(draw, {"a": Choice((3, Uniform(0, 1)))}), GridTrial()))


def test_a_space_travels_between_processes():
    space = load_space("card")
    assert pickle.loads(pickle.dumps(space)) == space
    assert space.encode(Recipe()) is None
