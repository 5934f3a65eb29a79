"""What the README says exists: its commands and their options, its space, its files."""

import re
from pathlib import Path

import pytest
import typer.main

from search.cli.main import app
from spaces.load import load_space

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
PAGES = [README, *(page.read_text() for page in sorted((ROOT / "docs").glob("*.md")))]


@pytest.mark.parametrize("page", PAGES, ids=["README", *(p.name for p in sorted((ROOT / "docs").glob("*.md")))])
def test_every_command_and_option_named_in_the_pages_exists(page):
    for name, rest in re.findall(r"(?:`|^)sweep ([a-z]+)([^`\n#]*)", page, flags=re.MULTILINE):
        assert name in COMMANDS, name
        options = {option for parameter in COMMANDS[name].params for option in parameter.opts}
        assert set(re.findall(r"--[a-z0-9-]+", rest)) <= options | {"--help"}, (name, rest)


def test_the_space_in_the_readme_loads(tmp_path):
    (space,) = (block for block in re.findall(r"```yaml\n(.*?)```", README, flags=re.DOTALL) if "format: 1" in block)
    (tmp_path / "own.yaml").write_text(space)
    assert load_space(tmp_path / "own.yaml").search.trials == 64


def test_every_link_leads_to_a_file():
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_benchmark_named_in_the_pages_exists():
    named = {name for page in PAGES for name in re.findall(r"(?<!tests/)benchmarks/\w+\.py", page)}
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
