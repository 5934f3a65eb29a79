"""Names of earlier versions in recipes are read with their old meaning."""

import pytest

from training.errors import UserError
from training.recipe import read_recipe
from training.renames import current_params

OLD = {
    "sharpness": {"name": "asam", "rho": 0.5},
    "head_rate": {"factor": 10.0},
    "schedule": {"name": "trapezoid", "decay_share": 0.4},
    "augmentation": {"policy": "small_images", "rotate": 5.0},
}
NEW = {
    "sam": {"name": "asam", "rho": 0.5},
    "head_lr": {"factor": 10.0},
    "schedule": {"name": "trapezoid", "cooldown_fraction": 0.4},
    "augmentation": {"policy": "affine_colour", "rotate": 5.0},
}


def test_a_recipe_with_earlier_names_is_the_recipe_with_the_names_of_today():
    recipe = read_recipe(OLD)
    assert recipe == read_recipe(NEW)
    assert set(OLD) & set(recipe.model_dump()) == {"schedule", "augmentation"}
    assert "decay_share" not in recipe.schedule.model_dump()


def test_the_earlier_and_the_present_name_at_once_are_refused():
    with pytest.raises(UserError, match="head_rate"):
        read_recipe({"head_rate": {"factor": 2.0}, "head_lr": {"factor": 3.0}})


def test_parameters_of_an_earlier_draw_have_the_names_of_today():
    assert current_params(
        {
            "sharpness": "sam",
            "sharpness[sam].rho": 0.1,
            "schedule": "trapezoid",
            "schedule[trapezoid].decay_share": 0.3,
            "head_rate.factor": 4.0,
            "augmentation": "small_images",
            "augmentation[small_images].probability": 0.5,
            "optimizer.lr": 0.1,
        }
    ) == {
        "sam": "sam",
        "sam[sam].rho": 0.1,
        "schedule": "trapezoid",
        "schedule[trapezoid].cooldown_fraction": 0.3,
        "head_lr.factor": 4.0,
        "augmentation": "affine_colour",
        "augmentation[affine_colour].probability": 0.5,
        "optimizer.lr": 0.1,
    }
