"""The recipes that are measured: few, and one for each choice that decides the cost."""

from search.core.cost_model import (
    CHECKS,
    choose_checks,
    choose_targets,
    describe_features,
    draw_recipes,
    list_levels,
    list_targets,
)
from spaces.load import load_space
from tests.search.core.made_up_costs import resolve
from training.errors import UserError
from training.recipe import Recipe


def targets_of(name, *overrides):
    candidates = list_targets(draw_recipes(load_space(name, list(overrides)), resolve))
    return candidates, *choose_targets(candidates)


def test_every_value_of_a_choice_that_decides_the_cost_is_measured_with_the_ends_of_numbers():
    _, targets, left_out = targets_of("quick")
    assert {target.level for target in targets} == {"last", "most", "full"}
    assert {target.recipe.precision.mode for target in targets} == {"32-true", "bf16-mixed"}
    assert {target.recipe.batch_size for target in targets} == {8, 16, 32}  # 16 is that of the baseline
    assert not left_out


def test_the_recipe_of_a_branch_differs_from_the_base_in_one_choice():
    _, (base, *others), _ = targets_of("quick")
    assert base.kind == "base"
    assert base.recipe == resolve(load_space("quick").baselines()[0])
    for target in others:
        assert sum(target.features[name] != base.features[name] for name in base.features) == 1


def test_a_large_space_names_the_choices_that_it_leaves_out_and_its_draws_can_all_be_trained():
    _, targets, left_out = targets_of("full", "batch_size=32")
    assert len(targets) == 17
    assert "optimizer.name" in left_out
    for target in targets:
        assert Recipe.model_validate(target.recipe.model_dump()) == target.recipe


def test_a_milestone_is_measured_at_each_of_its_levels():
    recipe = Recipe.model_validate({"unfreeze": {"level": "last", "milestones": [3, 4]}, "epochs": 10})
    assert list(list_levels(recipe)) == [("last", 3), ("most", 1), ("full", 6)]
    assert [target.level for target in list_targets([recipe])] == ["last", "most", "full"]


def test_the_error_is_measured_on_recipes_that_the_model_does_not_have():
    candidates, targets, _ = targets_of("quick")
    checks = choose_checks(candidates, targets)
    assert len(checks) == CHECKS
    assert not [check for check in checks if any(check.features == target.features for target in targets)]


def test_values_without_influence_on_the_cost_are_no_branches():
    one, other = (Recipe.model_validate({"label_smoothing": {"alpha": alpha}}) for alpha in (0.0, 0.1))
    assert describe_features(one, "full") == describe_features(other, "full")


def test_a_draw_that_conflicts_with_the_base_is_measured_as_it_is(monkeypatch):
    import search.core.cost_model as module

    def refuse(values):
        raise UserError("conflict")

    candidates = list_targets(draw_recipes(load_space("quick"), resolve))
    monkeypatch.setattr(module, "read_recipe", refuse)
    targets, _ = choose_targets(candidates)
    drawn = [candidate.recipe for candidate in candidates]
    assert [target for target in targets if target.recipe not in drawn] == []
