import pytest
from pydantic import TypeAdapter
from ruamel.yaml import YAML

from training.contract.part import Part
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique
from training.errors import UserError
from training.examples import list_examples
from training.recipe import Recipe, read_recipe
from training.schema import slot_of
from training.small_trainings import changes_setup

TECHNIQUES = {
    name: field.annotation
    for name, field in Recipe.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Technique)
}


DIGITS = {"data": {"name": "digits", "train_size": 100}, "backbone": {"name": "test_resnet", "weights": "letters"}}

# Parts that are not techniques.
OTHERS = {"preprocessing": {"preprocessing": {"image_size": 32, "crop": 1.0, "mean": [0.5, 0.5, 0.5]}}}
EXAMPLES = {
    **{name: next(list_examples(name), {}) for name in Recipe.model_fields if slot_of(Recipe, name).parts},
    **OTHERS,
}
NEEDS_A_GPU = {"cudnn_benchmark"}


def on_recipe(name):
    return read_recipe({**DIGITS, **EXAMPLES[name]})


def test_a_recipe_survives_json():
    for recipe in (Recipe(), *map(on_recipe, EXAMPLES)):
        assert Recipe.model_validate_json(recipe.model_dump_json()) == recipe
        assert read_recipe(recipe.model_dump()) == recipe


def test_a_recipe_survives_yaml(tmp_path):
    yaml = YAML(typ="safe")
    for recipe in (Recipe(), *map(on_recipe, EXAMPLES)):
        yaml.dump(recipe.model_dump(), tmp_path / "recipe.yaml")
        assert read_recipe(yaml.load(tmp_path / "recipe.yaml")) == recipe


def test_the_default_recipe_has_every_technique_off():
    assert list(Recipe().techniques()) == []
    assert len(TECHNIQUES) >= 6


@pytest.mark.parametrize("name", TECHNIQUES)
def test_a_technique_is_off_only_with_its_defaults(name):
    kind = TECHNIQUES[name]
    assert not kind().is_on
    assert not kind(**kind().model_dump()).is_on
    examples = list(list_examples(name))
    assert examples, f"{name} needs examples in its own file: recipes that switch it on"
    assert next(iter(examples[0])) == name
    # A second off value would leave the set-up as it was: every other value must change it.
    applied = [apply(name, values) for values in [*examples, *with_one_field_changed(kind, examples[0])]]
    assert False not in applied
    assert any(applied) or name in NEEDS_A_GPU


def with_one_field_changed(kind, example):
    """Return variants of an example in which a field has the value that its declaration names."""
    name, values = next(iter(example.items()))
    return [
        {**example, name: {**values, field: value}}
        for field, info in kind.model_fields.items()
        for value in info.examples or ()
    ]


def apply(name, values):
    """Return whether this technique changes the set-up of its recipe; None where that is not possible here."""
    try:
        return changes_setup(name, {**DIGITS, **values}, "cuda" if name in NEEDS_A_GPU else "cpu")
    except UserError:  # the value needs another field, or another machine
        return None


@pytest.mark.parametrize("name", Recipe.model_fields)
def test_unknown_fields_are_refused_by_every_part(name):
    part = getattr(Recipe(), name)
    if isinstance(part, Part):
        with pytest.raises(UserError, match=rf"{name}\.bogus=1: extra inputs are not permitted"):
            read_recipe({name: {**part.model_dump(), "bogus": 1}})


def test_unknown_techniques_are_refused():
    with pytest.raises(UserError, match=r"mix_up=\{'alpha': 1\.0\}: extra inputs"):
        read_recipe({"mix_up": {"alpha": 1.0}})


def test_every_wrong_field_is_named_as_the_user_wrote_it():
    with pytest.raises(UserError) as caught:
        read_recipe(
            {
                "optimizer": {"name": "adam", "lr": -1.0},
                "preprocessing": {"image_size": "big", "mean": [0.5, 2.0, 0.5]},
                "data": {"name": "image_folder"},
                "epochs": 0,
            }
        )
    said = str(caught.value)
    assert "optimizer.lr=-1.0: input should be greater than 0, or input should be 'auto', 'auto/3'" in said
    assert "preprocessing.image_size='big': input should be a valid integer, or input should be 'auto'." in said
    assert "preprocessing.mean.1=2.0: input should be less than or equal to 1" in said
    assert "data.root: field required." in said
    assert "epochs=0: " in said


def test_numbers_are_not_taken_for_other_types():
    for wrong in ({"epochs": 2.5}, {"epochs": "3"}, {"mixup": {"alpha": "1"}}, {"optimizer": {"lr": float("nan")}}):
        with pytest.raises(UserError):
            read_recipe(wrong)


def test_all_conflicts_come_in_one_error():
    with pytest.raises(UserError) as caught:
        read_recipe(
            {
                "epochs": 2,
                "batch_size": 1,
                "mixup": {"alpha": 1.0},
                "schedule": {"name": "cosine", "warmup_epochs": 2.0},
                "gradient_clipping": {"algorithm": "value"},
            }
        )
    said = str(caught.value)
    assert "mixup.alpha with batch_size=1 would mix each image with itself" in said
    assert "schedule.warmup_epochs=2 leaves nothing of epochs=2" in said
    assert "gradient_clipping.algorithm=value does nothing" in said
    assert "\n" not in said


def test_a_start_factor_without_warm_up_is_refused():
    with pytest.raises(UserError, match="start_factor does nothing while"):
        read_recipe({"schedule": {"name": "cosine", "start_factor": 0.5}})


def test_recipes_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        Recipe().epochs = 3


def test_a_slot_of_the_set_up_refuses_a_second_technique():
    from torch import nn

    setup = TrainingSetup(nn.Linear(1, 1), "cpu", 10, (4, 4), 8)
    mixing = TypeAdapter(TECHNIQUES["mixing"]).validate_python({"probability": 0.5})
    mixing.apply(setup)
    with pytest.raises(ValueError, match="two techniques set TrainingSetup.mixing_probability"):
        mixing.apply(setup)
    setup.set_trainer(precision="32-true")
    with pytest.raises(ValueError, match="two techniques set the Trainer's precision"):
        setup.set_trainer(precision="64-true")
    with pytest.raises(AttributeError, match="no part 'optimiser'"):
        setup.optimiser = None


def _whole_numbers(schema, definitions, path):
    """Return every place of a JSON schema that takes whole numbers, with its bounds."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    if schema.get("type") == "integer":
        yield path, schema
    inner = [(path, one) for word in ("anyOf", "oneOf") for one in schema.get(word, [])]
    inner += [(f"{path}.{name}", one) for name, one in schema.get("properties", {}).items()]
    inner += [(f"{path}[]", schema["items"])] if "items" in schema else []
    for where, one in inner:
        yield from _whole_numbers(one, definitions, where)


def test_every_whole_number_of_a_recipe_and_of_a_search_has_bounds():
    from spaces.search import Search

    for model in (Recipe, Search):
        schema = model.model_json_schema()
        found = list(_whole_numbers(schema, schema["$defs"], model.__name__))
        assert len(found) >= 3
        assert [path for path, rules in found if not {"maximum", "exclusiveMaximum"} & rules.keys()] == []


def test_an_unreasonably_large_size_is_refused():
    with pytest.raises(UserError, match=r"batch_size=100000000000000000000: .*less than or equal to 1000000"):
        read_recipe({"batch_size": 10**20})
