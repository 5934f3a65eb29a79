"""Load a space from a few lines of YAML."""

from collections.abc import Callable
from pathlib import Path

import pytest

from spaces.load import load_space
from spaces.space import Space

Load = Callable[..., Space]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load a space from the lines below `recipe:`, and those of other sections."""

    def load_text(recipe: str, more: str = "", overrides: tuple[str, ...] = ()) -> Space:
        path = tmp_path / "my.yaml"
        lines = "\n".join(f"  {line}" for line in recipe.strip().splitlines())
        path.write_text(f"format: 1\nrecipe:\n{lines}\n{more}")
        return load_space(path, overrides)

    return load_text
