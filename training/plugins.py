"""Techniques, backbones and kinds of families from the user's own files and from installed packages."""

from __future__ import annotations

import hashlib
import inspect
import linecache
import sys
import traceback
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from inspect import get_annotations
from pathlib import Path
from types import ModuleType
from typing import Literal, get_origin

from pydantic import Field

from training.contract.own_parts import FILES, PARTS, PLACEHOLDER, OwnPart, PluginFile
from training.contract.part import CODE, Part
from training.contract.specs import OwnBackbone
from training.contract.technique import Technique
from training.errors import UserError, describe_error
from training.families import FAMILIES, classes_of, extend, snake_case
from training.recipe import Recipe

GROUP = "technique_search.techniques"  # entry points of packages

# Each base class, with its methods of which a class needs one; the first is named where it lacks all.
METHODS: dict[type, tuple[str, ...]] = {
    FAMILIES["data"].base: ("load(self)",),
    FAMILIES["augmentation"].base: ("transforms(self, interpolation)", "build"),
    FAMILIES["loss"].base: ("losses(self, logits, targets)", "targets", "apply"),
    FAMILIES["optimizer"].base: ("build(self, parameters)",),
    FAMILIES["schedule"].base: ("after_warmup(self, steps, warmup)", "curve", "build"),
    OwnBackbone: ("build(self, class_count, image_size)",),
    Technique: ("apply(self, setup)",),
}
BASES = f"{', '.join(base.__name__ for base in METHODS if base is not Technique)} or Technique"


def load(files: Iterable[str | Path] = ()) -> None:
    """Add what installed packages and these files define to the recipes of this process."""
    Recipe.forget(PLACEHOLDER)  # of a sweep that this process has shown before
    for point in entry_points(group=GROUP):
        _load_package(point)
    for file in files:
        path = Path(file)
        if path.exists() and not path.is_file():  # a named pipe would be read for ever
            raise UserError(f"--plugin={path}: this is not a file. Give a file of Python code.")
        try:
            source = PluginFile(str(path), path.read_bytes().decode())
        except OSError as error:
            raise UserError(f"--plugin={path}: the file cannot be read ({error.strerror}).") from None
        except UnicodeDecodeError:
            raise UserError(f"--plugin={path}: this is not a text in UTF-8. Give a file of Python code.") from None
        _load_source(source)


def load_sources(sources: Iterable[Mapping[str, str]]) -> None:
    """Add the techniques that another process sent with `list_sources`, and those of installed packages."""
    load()
    for source in sources:
        _load_source(PluginFile(**source))


def list_sources() -> list[dict[str, str]]:
    """Return the texts of all files that were loaded, as plain values for another process."""
    return [vars(source) for source in FILES.values()]


def forget() -> None:
    """Remove everything that was loaded from the recipes of this process."""
    Recipe.forget()
    FILES.clear()


def _load_source(source: PluginFile) -> None:
    digest = _digest(source.text)
    if digest in FILES:
        return
    module = _run(source, digest)
    version = getattr(module, "__version__", None)
    if not (plugin_classes := list(classes_of(module, tuple(METHODS)))):
        raise UserError(f"--plugin={source.file}: it has no class derived from {BASES}. docs/plugins.md shows each.")
    for plugin_class in plugin_classes:
        register(plugin_class, _describe(version, digest), source.file)
    FILES[digest] = source


def _load_package(point: EntryPoint) -> None:
    package = point.dist.name if point.dist else point.module
    try:
        loaded = point.load()
    except Exception as error:  # noqa: BLE001 - any fault of the package
        raise UserError(
            f"The installed package {package} has a part that cannot be imported ({describe_error(error)}). "
            "Repair or remove the package."
        ) from None
    for plugin_class in classes_of(loaded, tuple(METHODS)) if isinstance(loaded, ModuleType) else [loaded]:
        if not (isinstance(plugin_class, type) and issubclass(plugin_class, tuple(METHODS))):
            raise UserError(
                f"The installed package {package}: {point.value} is neither derived from {BASES}, nor a module with such "
                "classes. Repair or remove the package."
            )
        text = inspect.getsource(sys.modules[plugin_class.__module__])
        register(plugin_class, _describe(point.dist.version if point.dist else None, _digest(text)), package)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _describe(version: object, digest: str) -> str:
    return f"{version} sha256-{digest}" if version else f"sha256-{digest}"


def _run(source: PluginFile, digest: str) -> ModuleType:
    module = ModuleType(f"technique_search_own_{digest}")
    module.__file__ = source.file
    # For tracebacks and inspect on a machine that does not have the file; other modules find it by its name, as pickle does.
    linecache.cache[source.file] = (len(source.text), None, source.text.splitlines(keepends=True), source.file)
    sys.modules[module.__name__] = module
    try:
        exec(compile(source.text, source.file, "exec", dont_inherit=True), vars(module))
    except SyntaxError as error:
        reason = f"line {error.lineno} is not Python ({error.msg})"
    except (Exception, SystemExit) as error:  # noqa: BLE001 - any fault of the file
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == source.file]
        where = f"line {lines[-1]}" if lines else "it"
        reason = f"{where} raised {describe_error(error)}"
    else:
        return module
    del sys.modules[module.__name__]
    raise UserError(f"--plugin={source.file}: {reason}. Correct the file.")


def register(plugin_class: type, code: str, origin: str) -> None:
    """Add a class to the recipes of this process; a class that was loaded from the same file before is replaced.

    Its name in snake case is the name in recipes. `code` is the version and the hash of its source, and `origin` the
    file or the package that it is from.
    """
    field, name = _find_place(plugin_class)
    key = f"{field}.{name}" if field else name
    before = PARTS.get(key)
    if before and before.code == code:
        return
    if before and before.origin != origin:
        raise UserError(f"--plugin={origin}: {name} is loaded from {before.origin} already. Give one of the two.")
    known = Recipe.kinds(field) if field in FAMILIES else () if field else Recipe.model_fields
    if not before and name in known:
        raise UserError(f"--plugin={origin}: a recipe has {key} already. Give {plugin_class.__name__} another name.")
    if problem := _find_problem(plugin_class, field):
        raise UserError(f"--plugin={origin}: {plugin_class.__name__} {problem}.")
    recorded = {CODE: (str, Field(code, description="Version and hash of its source; filled in."))}
    made = plugin_class
    if issubclass(plugin_class, Part):
        made = FAMILIES[field].named(plugin_class, **recorded) if field else extend(plugin_class, **recorded)
    Recipe.add(key, OwnPart(made, code, origin))


def _find_place(plugin_class: type) -> tuple[str | None, str]:
    """Return the field of recipes that gets a class, None for a technique, and the name of the class in recipes."""
    for field, family in FAMILIES.items():
        if issubclass(plugin_class, family.base):
            return field, family.name_of(plugin_class)
    return "backbone" if issubclass(plugin_class, OwnBackbone) else None, snake_case(plugin_class.__name__)


def _find_problem(plugin_class: type, field: str | None) -> str | None:
    base = next(base for base in METHODS if issubclass(plugin_class, base))
    if issubclass(plugin_class, Part):
        key = FAMILIES[field].key if field in FAMILIES else "name"
        declared = get_annotations(plugin_class).keys()
        is_named = field in FAMILIES and get_origin(plugin_class.model_fields[key].annotation) is Literal
        if taken := declared & ({CODE} if is_named else {CODE, key}):
            return f"has a field {min(taken)}, which a recipe uses for itself: rename it"
    if issubclass(plugin_class, Technique) and base is Technique and (problem := _find_problem_when_off(plugin_class)):
        return problem
    first, *others = METHODS[base]
    if all(getattr(plugin_class, name) is getattr(base, name) for name in (first.partition("(")[0], *others)):
        return f"has no method {first}: write it"
    return None


def _find_problem_when_off(technique_class: type[Technique]) -> str | None:
    if missing := [field for field, info in technique_class.model_fields.items() if info.is_required()]:
        return f"has no default for {', '.join(missing)}: the default of every field together means off, so give each"
    if not technique_class.model_fields:
        return "has no field, so it cannot be switched on: give it one, such as enabled: bool = False"
    if technique_class().is_on:
        return "is on with its defaults, which must mean off: change them, or is_on"
    return None
