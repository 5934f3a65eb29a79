"""Techniques from the user's own files and from installed packages; they take part in recipes as bundled ones do."""

from __future__ import annotations

import hashlib
import inspect
import linecache
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from pydantic import Field, create_model

from training.contract.part import CODE
from training.contract.technique import Technique
from training.errors import UserError
from training.recipe import Recipe

GROUP = "technique_search.techniques"  # entry points of packages


@dataclass(frozen=True)
class Source:
    """The text of a file with techniques; workers on other machines get it with the trial."""

    file: str  # its name in messages
    text: str


_files: dict[str, Source] = {}  # by the hash of the text
_origins: dict[str, str] = {}  # technique -> the file or package that it is from


def load(files: Iterable[str | Path] = ()) -> None:
    """Add the techniques of installed packages and of these files to the recipes of this process.

    Raises:
        UserError: a file cannot be read or run, has no technique, or uses a name that exists already.
    """
    for point in entry_points(group=GROUP):
        _load_package(point)
    for file in files:
        path = Path(file)
        try:
            source = Source(str(path), path.read_bytes().decode())
        except OSError as error:
            raise UserError(f"--with={path}: the file cannot be read ({error.strerror}).") from None
        except UnicodeDecodeError:
            raise UserError(f"--with={path}: this is not a text in UTF-8. Give a file of Python code.") from None
        _load_source(source)


def load_sources(sources: Iterable[Mapping[str, str]]) -> None:
    """Add the techniques that another process sent with `list_sources`, and those of installed packages."""
    load()
    for source in sources:
        _load_source(Source(**source))


def list_sources() -> list[dict[str, str]]:
    """Return the texts of all files that were loaded, as plain values for another process."""
    return [vars(source) for source in _files.values()]


def forget() -> None:
    """Remove the techniques that were loaded from the recipes of this process."""
    Recipe.forget_own_techniques()
    _files.clear()
    _origins.clear()


def _load_source(source: Source) -> None:
    digest = _digest(source.text)
    if digest in _files:
        return
    module = _run(source, digest)
    version = getattr(module, "__version__", None)
    found = list(_find_techniques(module))
    if not found:
        raise UserError(
            f"--with={source.file}: it defines no technique, which is a class derived from Technique. "
            "docs/own-technique.md shows one."
        )
    for kind in found:
        _register(kind, _describe(version, digest), source.file)
    _files[digest] = source


def _load_package(point: EntryPoint) -> None:
    package = point.dist.name if point.dist else point.module
    try:
        found = point.load()
    except Exception as error:  # noqa: BLE001 - any fault of the package
        raise UserError(
            f"The installed package {package} has a technique that cannot be imported ({type(error).__name__}: {error}). "
            "Repair or remove the package."
        ) from None
    kinds = list(_find_techniques(found)) if isinstance(found, ModuleType) else [found]
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Technique)):
            raise UserError(
                f"The installed package {package}: {point.value} is neither a Technique nor a module of some."
            )
        text = inspect.getsource(sys.modules[kind.__module__])
        _register(kind, _describe(point.dist.version if point.dist else None, _digest(text)), package)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _describe(version: object, digest: str) -> str:
    return f"{version} sha256-{digest}" if version else f"sha256-{digest}"


def _run(source: Source, digest: str) -> ModuleType:
    """Run a file as a module of its own.

    Raises:
        UserError: it is not Python, or raised an exception.
    """
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
        reason = f"{where} raised {type(error).__name__}: {str(error).partition(chr(10))[0]}".rstrip(": ")
    else:
        return module
    del sys.modules[module.__name__]
    raise UserError(f"--with={source.file}: {reason}. Correct the file.")


def _find_techniques(module: ModuleType) -> Iterator[type[Technique]]:
    """Return the techniques that a module defines, without those that it imports or whose name begins with _."""
    for name, value in vars(module).items():
        is_own = isinstance(value, type) and issubclass(value, Technique) and value.__module__ == module.__name__
        if is_own and not name.startswith("_"):
            yield value


def name_of(kind: type[Technique]) -> str:
    """Return the name in a recipe: `InputNoise` is `input_noise`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", kind.__name__).lower()


def _register(kind: type[Technique], code: str, origin: str) -> None:
    name = name_of(kind)
    before = _origins.get(name)
    if Recipe.own_techniques().get(name) == code:
        return
    if before is not None and before != origin:
        raise UserError(f"--with={origin}: {name} is loaded from {before} already. Give one of the two.")
    if name in Recipe.model_fields and before is None:
        raise UserError(f"--with={origin}: a recipe has {name} already. Give the class {kind.__name__} another name.")
    if problem := _find_problem(kind):
        raise UserError(f"--with={origin}: {kind.__name__} {problem}.")
    recorded = create_model(
        kind.__name__,
        __base__=kind,
        __module__=kind.__module__,
        __doc__=kind.__doc__,
        code=(str, Field(code, description="Version and hash of its source; filled in.")),
    )
    Recipe.add_technique(name, recorded, code)
    _origins[name] = origin


def _find_problem(kind: type[Technique]) -> str | None:
    """Return what is wrong with a technique, as the rest of a sentence."""
    if CODE in kind.model_fields:
        return f"has a field {CODE}, which is the name of the recorded hash: rename it"
    if missing := [field for field, info in kind.model_fields.items() if info.is_required()]:
        return (
            f"has no default for {', '.join(missing)}: the default of every field together means off, so give each one"
        )
    if not kind.model_fields:
        return "has no field, so it cannot be switched on: give it one, such as enabled: bool = False"
    if kind().is_on:
        return "is on with its defaults, which must mean off: change them, or is_on"
    if kind.apply is Technique.apply:
        return "has no method apply(self, setup): write it"
    return None
