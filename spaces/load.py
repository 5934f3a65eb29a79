"""Load a checked space or recipe from a file, or from a bundled name, with overrides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel, ValidationError

from spaces.baseline import build_baselines
from spaces.parameters.domains import DISCRIMINATORS, Tree, find_parameters, format_value, word_of
from spaces.parameters.feasibility import check_feasible
from spaces.reading.check import check_part
from spaces.reading.document import Document, did_you_mean, parse, parse_document, path_of, read_document
from spaces.reading.known_backbones import check_backbones
from spaces.reading.overrides import apply_overrides, is_of_search
from spaces.reading.yaml_values import dump_yaml
from spaces.search import Search
from spaces.space import Space
from training.errors import UserError
from training.recipe import RECORDED, Recipe, find_other_code, read_recipe

BUNDLED = Path(__file__).parent
FORMAT = 1


def bundled_names() -> list[str]:
    """The names of the spaces that come with this project."""
    return sorted(path.stem for path in BUNDLED.glob("*.yaml"))


def load_space(source: str | Path, overrides: Sequence[str] = ()) -> Space:
    """Load a bundled space by its name, or the space in a YAML file.

    Args:
        source: The name or the path.
        overrides: Values in the form `path=value`, applied in order.
    """
    return _make_space(read_document(*find_space(source)), Path(source).stem, overrides)


def parse_space(text: str, name: str, overrides: Sequence[str] = ()) -> Space:
    """Load the space in a YAML text, with overrides as in `load_space`; errors use `name` for it."""
    return _make_space(parse_document(text, name), Path(name).stem, overrides)


def parse_recorded_space(text: str, name: str, sweep: str) -> Space:
    """Load the resolved space of a sweep; errors use `name` for it."""
    document = parse_document(text, name)
    recipe = document.tree.get("recipe")
    if isinstance(recipe, dict) and (missing := [field for field in recipe if field not in Recipe.model_fields]):
        raise UserError(
            f"{sweep}: this sweep has the technique {', '.join(missing)}, which is not bundled: give its file with "
            "--plugin FILE, or install its package."
        )
    return _make_space(document, Path(name).stem, (), is_recorded=True)


def _make_space(document: Document, name: str, overrides: Sequence[str], *, is_recorded: bool = False) -> Space:
    document, recipe, search = _load(document, overrides, is_recorded=is_recorded)
    _refuse_shared_parameters(recipe, document)
    space = Space(name, recipe, _build_search(search, document))
    check_feasible(space, document)
    return space


def _build_search(search: dict[str, Tree], document: Document) -> Search:
    try:
        # Conflicts of the baseline are found when it is complete.
        return Search.model_validate(search, context=RECORDED)
    except ValidationError as error:  # Each field is legal, but not their combination.
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise document.error(("search", "scheduler"), f"search.scheduler: {reason}.") from None


def load_baseline(source: str | Path, overrides: Sequence[str] = ()) -> tuple[Recipe, bool]:
    """Load the recipe in a YAML file, or the baseline of a space.

    Returns:
        The recipe, and whether the file is a space.
    """
    for override in filter(is_of_search, overrides):
        raise UserError(
            f"{override}: this command trains one recipe and does not search. Leave it out, or search: sweep run {source}."
        )
    document, recipe, search = _load(read_document(*find_space(source)), overrides)
    _refuse_shared_parameters(recipe, document)
    check_backbones(recipe)
    try:
        return build_baselines(recipe, _build_search(search, document).baseline)[0], any(find_parameters(recipe))
    except UserError as error:
        raise UserError(f"{document.name}: {error}") from None


def load_recipe(source: str | Path, overrides: Sequence[str] = (), base: Recipe | None = None) -> Recipe:
    """Load the recipe in a YAML file. Parts that the file does not have are those of `base`, else they are off."""
    document = read_document(*find_space(source))
    recipe = document.tree.get("recipe")
    if base is not None and isinstance(recipe, dict):
        document = replace(document, tree={**document.tree, "recipe": {**base.model_dump(mode="json"), **recipe}})
    return _make_recipe(document, overrides)


def change_recipe(recipe: Recipe, overrides: Sequence[str]) -> Recipe:
    """A recipe with other values, which are given as for a space: `optimizer.lr=0.01`."""
    return _make_recipe(parse_document(dump_recipe(recipe), "the baseline"), overrides)


def _make_recipe(document: Document, overrides: Sequence[str]) -> Recipe:
    for override in filter(is_of_search, overrides):
        raise UserError(f"{override}: one recipe has no search. Leave it out.")
    document, recipe, _ = _load(document, overrides)
    for steps, domain in find_parameters(recipe, ("recipe",)):
        path = path_of(steps)
        raise document.error(
            steps, f"{path} has a domain ({word_of(domain)}), but a recipe has values only. Set one, as in {path}=..."
        )
    try:
        return read_recipe(recipe)
    except UserError as error:
        raise UserError(f"{document.name}: {error}") from None


def _refuse_shared_parameters(recipe: dict[str, Tree], document: Document) -> None:
    for steps, domain in find_parameters(recipe, ("recipe",)):
        if steps[1] in ("data", "seed"):
            raise document.error(
                steps,
                f"{path_of(steps)} cannot be searched ({word_of(domain)}): all trials of a sweep share it. Give it one value.",
            )


def dump_recipe(recipe: Recipe) -> str:
    """The complete text of a recipe's file, from which the same recipe loads."""
    return dump_yaml({"format": FORMAT, "recipe": _name_first(recipe.model_dump())})


def _name_first(values: dict[str, Tree]) -> dict[str, Tree]:
    """Put the kind of each part first, as people write it."""
    ordered = {key: values[key] for key in DISCRIMINATORS if key in values} | values
    return {key: _name_first(value) if isinstance(value, dict) else value for key, value in ordered.items()}


def _load(
    document: Document, overrides: Sequence[str], *, is_recorded: bool = False
) -> tuple[Document, dict[str, Tree], dict[str, Tree]]:
    """The document with overrides, its checked recipe with domains, and its checked search section."""
    _check_top(document)
    document = apply_overrides(document, overrides)
    if problem := find_other_code(document.tree.get("recipe"), is_recorded=is_recorded):
        raise UserError(f"{document.name}: {problem}")
    recipe = _read_section("recipe", Recipe, document)
    search = _read_section("search", Search, document)
    for steps, domain in find_parameters(search, ("search",)):
        raise document.error(steps, f"{path_of(steps)} cannot be searched ({word_of(domain)}). Give it a value.")
    return document, recipe, search


def _read_section(section: str, part: type[BaseModel], document: Document) -> dict[str, Tree]:
    values = document.tree.get(section)
    tree = parse({} if values is None else values, (section,), document)
    if not isinstance(tree, dict):
        raise document.error((section,), f"{section} takes a mapping, with one line for each part of it.")
    check_part(tree, part, (section,), document)
    return tree


def find_space(source: str | Path) -> tuple[Path, str]:
    """The file of a bundled space or of a user's own, and its name in errors."""
    names = bundled_names()
    if str(source) in names:
        return BUNDLED / f"{source}.yaml", str(source)
    path = Path(source)
    if path.is_file() or (source and path.is_dir()) or path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        return path, str(source)
    raise UserError(
        f"{source}: no folder has this name, and there is no such space.{did_you_mean(str(source), names)} "
        f"Bundled are {', '.join(names)}; a file of your own is named with its ending, as in {source}.yaml."
    )


def _check_top(document: Document) -> None:
    tree = document.tree
    known = ("format", "recipe", "search")
    for key in tree:
        if key not in known:
            hint = f" Write {key} below recipe:." if key in Recipe.model_fields else did_you_mean(key, known)
            raise document.error((key,), f"there is no {key} in a space; it has {', '.join(known)}.{hint}")
    if "format" not in tree:
        raise document.error((), f"the file has no format. Add the line `format: {FORMAT}` at its top.")
    if tree["format"] != FORMAT or type(tree["format"]) is not int:
        raise document.error(
            ("format",),
            f"format={format_value(tree['format'])} is not known to this version, which reads format {FORMAT}. "
            "A newer version wrote a higher number: update, or write the file again.",
        )
    if "recipe" not in tree:
        raise document.error((), "the file has no recipe. Add `recipe:`, with what is fixed and what is searched.")
