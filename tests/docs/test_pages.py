"""The pages name existing commands and files, show spaces that load, and fit a terminal."""

import re
from pathlib import Path

import pytest
import typer.main

from search.cli.main import app
from search.runner.worker import ROOMS
from spaces.load import load_space

ROOT = Path(__file__).parents[2]
FILES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md")] + sorted(
    ROOT.glob("docs/*.md")
)
PAGES = {str(path.relative_to(ROOT)): path.read_text() for path in FILES}
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
WIDEST = 120
LARGEST_README = 8 * 1024  # bytes
# Sentences of docs/security.md, and the tests that hold them.
PROMISES = {
    "no command sends a password, a token or a key to a place that only a ledger names": (
        "search/test_trust.py",
        "test_no_command_asks_an_mlflow_server_that_only_the_ledger_names",
        "test_no_command_joins_a_cluster_that_only_the_ledger_names",
        "test_no_command_copies_to_a_store_that_only_the_ledger_names",
    ),
    "The names must be equal letter by letter.": (
        "search/test_trust.py",
        "test_only_the_very_place_is_known",
    ),
    "an SQLite file whose artifacts are files too": (
        "search/test_trust.py",
        "test_a_database_whose_artifacts_are_elsewhere_must_be_named",
    ),
    "are in no file and in no argument of a sweep's processes": (
        "search/test_secrets.py",
        "test_the_variables_of_a_user_are_in_no_file_or_argument_of_a_sweep_and_its_ray",
    ),
    "They never appear in a ledger, run, export, report, log or line of the terminal": (
        "search/test_secrets.py",
        "test_a_planted_password_is_in_no_ledger_run_export_report_log_or_line",
    ),
    "All processes of a Ray that a sweep starts listen on 127.0.0.1 alone.": (
        "search/runner/machines/test_cluster.py",
        "test_a_ray_of_this_machine_listens_on_the_loopback_alone",
    ),
}


def options_of(command):
    return {option for one in command.params if one.param_type_name == "option" for option in one.opts} | {"--help"}


@pytest.mark.parametrize("page", PAGES)
def test_every_command_and_option_named_in_the_pages_exists(page):
    for name, rest in re.findall(r"(?:`|^)sweep ([a-z]+)([^`\n#]*)", PAGES[page], flags=re.MULTILINE):
        assert name in COMMANDS, name
        assert set(re.findall(r"--[a-z0-9-]+", rest)) <= options_of(COMMANDS[name]), (name, rest)


@pytest.mark.parametrize("room", ROOMS)
def test_every_option_of_a_command_that_a_message_names_exists(room):
    texts = [path.read_text() for ending in ("py", "yaml", "j2", "js") for path in (ROOT / room).rglob(f"*.{ending}")]
    named = [found for text in texts for found in re.findall(r"sweep ([a-z]+)((?: [^ ()\"`,;]+)*? --[a-z-]+)", text)]
    missing = {
        (name, option)
        for name, rest in named
        if name in COMMANDS
        for option in re.findall(r"--[a-z-]+", rest)
        if option not in options_of(COMMANDS[name])
    }
    assert missing == set()


def test_the_space_of_the_first_sweep_loads(tmp_path):
    blocks = re.findall(r"```yaml\n(.*?)```", PAGES["docs/first-sweep.md"], flags=re.DOTALL)
    (space,) = (block for block in blocks if "format: 1" in block)
    (tmp_path / "own.yaml").write_text(space)
    assert load_space(tmp_path / "own.yaml").search.trials == 64


@pytest.mark.parametrize("sentence", PROMISES)
def test_every_promise_of_the_page_on_security_has_a_test(sentence):
    file, *tests = PROMISES[sentence]
    assert sentence in " ".join(PAGES["docs/security.md"].split())
    assert [name for name in tests if f"def {name}(" not in (ROOT / "tests" / file).read_text()] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file(page):
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", PAGES[page])
    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []


def test_the_readme_or_the_page_for_contributors_links_to_every_page_but_those_of_the_site():
    of_the_site = {f"docs/{name}.md" for name in ("index", "commands", "formats", "ledger")}
    pages = {f"docs/{path.name}" for path in ROOT.glob("docs/*.md")} - of_the_site
    text = PAGES["README.md"] + PAGES["CONTRIBUTING.md"]
    assert [page for page in sorted(pages) if page not in text] == []


def test_every_page_is_in_the_table_of_contents_of_the_site():
    listed = set(re.findall(r"^[a-z-]+$", PAGES["docs/index.md"], flags=re.MULTILINE))
    assert listed == {path.stem for path in ROOT.glob("docs/*.md")} - {"index"}


def test_every_benchmark_named_in_the_pages_exists():
    named = {name for page in PAGES.values() for name in re.findall(r"(?<!tests/)benchmarks/\w+\.py", page)}
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_every_folder_and_file_in_the_tree_of_the_architecture_exists():
    (tree,) = (
        text for text in re.findall(r"```\n(.*?)```", PAGES["docs/architecture.md"], re.DOTALL) if "loop/" in text
    )
    folders: list[tuple[int, str]] = []
    for line in tree.splitlines():
        indent = len(line) - len(line.lstrip())
        names = re.findall(r"[\w.]+[/\w.]*", re.split(r"\s{2,}", line.strip())[0])
        folders = [(depth, name) for depth, name in folders if depth < indent]
        room = ROOT.joinpath(*(name for _, name in folders))
        assert [name for name in names if not (room / name).exists()] == [], line
        folders.append((indent, names[0]))


@pytest.mark.parametrize("page", PAGES)
def test_no_line_is_wider_than_a_terminal_except_in_tables_and_blocks(page):
    wide, is_block = [], False
    for number, line in enumerate(PAGES[page].splitlines(), 1):
        is_block ^= line.startswith("```")
        if len(line) > WIDEST and not is_block and not line.startswith("|"):
            wide.append(number)
    assert wide == []


def test_the_readme_is_short():
    assert len(PAGES["README.md"].encode()) <= LARGEST_README
