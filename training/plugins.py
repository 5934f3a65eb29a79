"""Techniques, backbones and kinds of families from the user's own files and from installed packages."""

from __future__ import annotations

import hashlib
import inspect
import linecache
import sys
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from training.errors import OWN_FILES, UserError, describe_error
from training.plugin_kinds import BASES, find_kinds, forget_kinds, is_kind, register
from training.recipe import PLACEHOLDER, Recipe

GROUP = "technique_search.techniques"  # entry points of packages


@dataclass(frozen=True)
class PluginFile:
    """The text of a file; workers on other machines get it with the trial."""

    file: str  # its name in messages
    text: str


_files: dict[str, PluginFile] = {}  # by the hash of the text


def load(files: Iterable[str | Path] = ()) -> None:
    """Add what installed packages and these files define to the recipes of this process."""
    Recipe.forget_plugins(PLACEHOLDER)  # of a sweep that this process has shown before
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
    return [vars(source) for source in _files.values()]


def forget() -> None:
    """Remove everything that was loaded from the recipes of this process."""
    forget_kinds()
    _files.clear()
    OWN_FILES.clear()


def _load_source(source: PluginFile) -> None:
    digest = _digest(source.text)
    if digest in _files:
        return
    module = _run(source, digest)
    version = getattr(module, "__version__", None)
    if not (plugin_classes := list(find_kinds(module))):
        raise UserError(f"--plugin={source.file}: it has no class derived from {BASES}. docs/plugins.md shows each.")
    for plugin_class in plugin_classes:
        register(plugin_class, _describe(version, digest), source.file)
    _files[digest] = source


def _load_package(point: EntryPoint) -> None:
    package = point.dist.name if point.dist else point.module
    try:
        loaded = point.load()
    except Exception as error:  # noqa: BLE001 - any fault of the package
        raise UserError(
            f"The installed package {package} has a part that cannot be imported ({describe_error(error)}). "
            "Repair or remove the package."
        ) from None
    plugin_classes = list(find_kinds(loaded)) if isinstance(loaded, ModuleType) else [loaded]
    for plugin_class in plugin_classes:
        if not is_kind(plugin_class):
            raise UserError(
                f"The installed package {package}: {point.value} is neither derived from {BASES}, nor a module with such "
                "classes. Repair or remove the package."
            )
        OWN_FILES.add(inspect.getfile(plugin_class))
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
    OWN_FILES.add(source.file)
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
