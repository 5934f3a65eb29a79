"""Queries on a space: its baselines, its table, its values, and the space without some values."""

import pytest

from spaces.load import load_space, parse_space
from training.errors import UserError
from training.recipe import Recipe
from training.techniques.optimization.torch_optimizers import AdamW


def test_the_baseline_has_fixed_values_and_defaults_at_three_learning_rates():
    middle, low, high = load_space("quick").baselines()
    assert (middle.epochs, middle.backbone.weights) == (9, "letters")
    assert list(middle.techniques()) == []
    assert middle.batch_size == 16  # named in search.baseline
    lr = Recipe().optimizer.lr
    assert [b.optimizer.lr for b in (middle, low, high)] == [lr, lr / 3, lr * 3]
    assert low.model_copy(update={"optimizer": middle.optimizer}) == middle


def test_a_baseline_has_other_rates_only_where_the_techniques_have_them_too(load):
    def rates(recipe, more=""):
        space = load(f"{recipe}\nlabel_smoothing: {{alpha: {{choice: [0.0, 0.1]}}}}", more)
        return [one.optimizer.lr for one in space.baselines()]

    default = Recipe().optimizer.lr
    three = [default, default / 3, default * 3]
    assert rates("optimizer: {name: sgd, lr: {log_uniform: [0.01, 0.1]}}") == three
    assert len(rates("optimizer: {choice: [{name: sgd, lr: 0.1}, {name: adamw, lr: 0.001}]}")) == 3
    assert rates("epochs: 2") == [default]
    assert rates("optimizer: {name: sgd, lr: 0.1}") == [0.1]
    assert rates("optimizer: {name: sgd, lr: 0.1, weight_decay: {choice: [0.0, 0.01]}}") == [0.1]
    assert rates("optimizer: {name: sgd, lr: auto}") == ["auto"]
    found = ["auto", "auto/3", "auto*3"]
    own = "search: {baseline: {optimizer: {name: sgd, lr: auto}}}"
    assert rates("optimizer: {name: sgd, lr: {choice: [auto, 0.1]}}", own) == found


def test_the_baseline_of_a_searched_rate_has_its_default(load):
    searched = load("optimizer: {name: sgd, lr: {choice: [auto, 0.1]}}")
    assert searched.values_of("optimizer.lr") == {"auto", 0.1}
    assert searched.baselines()[0].optimizer.lr == 0.05


def test_the_baseline_keeps_the_fixed_values_inside_a_technique(load):
    space = load("optimizer: {name: adamw, lr: {log_uniform: [1e-6, 1e-5]}, beta1: 0.8}")
    assert space.baselines()[0].optimizer == AdamW(beta1=0.8)  # its default lr, outside the domain


def test_the_baseline_leaves_a_technique_off_whose_fixed_part_needs_a_searched_one(load):
    space = load("gradient_clipping: {algorithm: value, value: {log_uniform: [0.1, 1]}}\nmixup: {alpha: 0.5}")
    baseline = space.baselines()[0]
    assert baseline.gradient_clipping.value == 0
    assert baseline.mixup.alpha == 0.5


def test_a_baseline_that_conflicts_is_refused(load):
    with pytest.raises(UserError, match=r"the baseline.*is refused: schedule\.warmup_epochs=12 leaves nothing"):
        load("epochs: {choice: [20, 30]}\nschedule: {name: cosine, warmup_epochs: 12}")


BASELINE = (
    "schedule: {choice: [{name: constant}, {name: cosine, warmup_epochs: {choice: [0, 1]}}]}\n"
    "unfreeze: {level: {choice: [last, full]}}\n"
    "optimizer: {name: momentum, momentum: 0.8, lr: {log_uniform: [0.001, 1]}}"
)


def test_a_space_names_choices_of_its_baseline(load):
    chosen = "{schedule: {name: cosine, warmup_epochs: 1}, optimizer: {name: momentum, lr: 0.01}}"
    space = load(BASELINE, f"search: {{baseline: {chosen}}}\n")
    middle, low, _ = space.baselines()
    assert (middle.schedule.name, middle.schedule.warmup_epochs) == ("cosine", 1)
    assert (middle.optimizer.lr, low.optimizer.lr) == (0.01, 0.01 / 3)
    assert middle.optimizer.momentum == 0.8  # fixed by the space
    assert middle.unfreeze == Recipe().unfreeze  # not named
    assert parse_space(space.to_yaml(), "again.yaml").baselines() == space.baselines()


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        (
            "{schedule: {name: cosine, warmup_epochs: 5}}",
            r"search\.baseline\.schedule: .*never draws.*warmup_epochs: 5",
        ),
        ("{mixup: {alpha: 0.2}}", r"baseline\.mixup: .*Add it below recipe\.mixup"),
        ("{no_decay: {enabled: true}}", r"the choices of search\.baseline.*weight_decay is 0"),
        ("{epochs: 5}", r"baseline\.epochs: this space never draws 5"),
        ("{optimizer: {name: momentum, momentum: 0.9}}", r"baseline\.optimizer: this space never draws"),
        ("{schedule: {name: cosin}}", "cosin.*did you mean cosine"),
        ("{batch_size: {choice: [8, 16]}}", r"search\.baseline\.batch_size cannot be searched"),
        ("{mixing: {probability: 0.5}}", "the choices of search.baseline.*is refused"),
    ],
)
def test_a_baseline_outside_the_space_is_refused(load, chosen, words):
    with pytest.raises(UserError, match=f"(?i){words}"):
        load(BASELINE, f"search: {{baseline: {chosen}}}\n")


def test_an_override_sets_a_choice_of_the_baseline():
    space = load_space("card", ["search.baseline.schedule={name: constant}", "search.baseline.optimizer.lr=0.1"])
    baseline = space.baselines()[0]
    assert (baseline.schedule.name, baseline.optimizer.lr) == ("constant", 0.1)


def test_an_override_of_a_technique_replaces_the_choice_of_the_baseline():
    space = load_space("card", ["optimizer={name: adamw, lr: {log_uniform: [1e-5, 1e-2]}}"])
    assert space.baselines()[0].optimizer == AdamW()
    assert space.baselines()[0].schedule.name == "cosine"  # still named


def test_the_values_of_a_path_are_those_of_all_branches(load):
    space = load(
        "precision: {choice: [{mode: 16-mixed}, {mode: {choice: [32-true, bf16-mixed]}}]}\n"
        "optimizer: {choice: [{name: sgd, lr: 0.1}, {name: adam}]}\n"
        "preprocessing: {mean: [0.5, 0.5, 0.5]}\n"
        "accumulation: {batches: {int_uniform: [1, 3]}}"
    )
    assert space.values_of("precision.mode") == {"16-mixed", "32-true", "bf16-mixed"}
    assert space.values_of("backbone.weights") == {"pretrained"}
    assert space.values_of("optimizer.name") == {"sgd", "adam"}
    assert space.values_of("optimizer.lr") == {0.1, 0.001}
    assert space.values_of("optimizer.momentum") == set()
    assert space.values_of("data.root") == set()
    assert space.values_of("preprocessing.mean") == {(0.5, 0.5, 0.5)}
    assert space.values_of("accumulation.batches") == {1, 2, 3}


def test_a_value_can_be_removed(load):
    space = load_space("quick").without("precision.mode", {"bf16-mixed", "16-mixed"})
    assert space.values_of("precision.mode") == {"32-true"}
    assert space.recipe["unfreeze"] == load_space("quick").recipe["unfreeze"]
    space = load("precision: {choice: [{mode: 16-mixed}, {mode: {choice: [32-true, bf16-mixed]}}]}")
    assert space.without("precision.mode", ["16-mixed"]).values_of("precision.mode") == {"32-true", "bf16-mixed"}
    left = space.without("precision.mode", ["32-true", "bf16-mixed"])
    assert left.values_of("precision.mode") == {"16-mixed"}
    space = load("accumulation: {batches: {int_uniform: [1, 4]}}")
    assert space.without("accumulation.batches", [2, 3]).values_of("accumulation.batches") == {1, 4}


def test_removing_a_missing_value_changes_nothing():
    space = load_space("quick")
    assert space.without("precision.mode", ["64-true"]) == space
    assert space.without("optimizer.beta1", [0.9]) == space


@pytest.mark.parametrize("recipe", ["precision: {mode: 16-mixed}", "precision: {mode: {choice: [16-mixed]}}"])
def test_the_last_value_cannot_be_removed(load, recipe):
    with pytest.raises(UserError, match=r"precision\.mode: nothing is left of what the space offers \(16-mixed\)"):
        load(recipe).without("precision.mode", ["16-mixed", "bf16-mixed"])


def test_a_default_cannot_be_removed(load):
    with pytest.raises(UserError, match=r"nothing is left of what the space offers \(32-true\)"):
        load("epochs: 3").without("precision.mode", ["32-true"])
