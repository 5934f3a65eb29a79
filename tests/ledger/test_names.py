"""A name is a name in every command, and what cannot be written is refused before anything is made."""

import subprocess
import sys

import pytest

from ledger.names import check_name
from search.arguments import check_store
from search.cli.main import app
from training.errors import UserError
from training.process.writable import check_file, check_folder, made_for_now

COMMANDS = {
    "resume": ["resume"],
    "export": ["export"],
    "confirm": ["confirm"],
    "ablate": ["ablate"],
    "show": ["show"],
    "report": ["report"],
    "stop": ["stop"],
    "rm": ["rm", "-y"],
    "run --name": ["run", "quick", "--name"],
    "run --warm-start": ["run", "quick", "--warm-start"],
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    return home


def call(*arguments):
    app(list(arguments), standalone_mode=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_refuses_a_path_as_a_name_and_changes_nothing(command, elsewhere, tmp_path):
    outside = tmp_path / "elsewhere" / "sweeps" / "quick-1"
    outside.mkdir(parents=True)
    (outside / "ledger.jsonl").write_text('{"format":1}\n')
    (outside / "space.yaml").touch()
    for name in (str(outside), "../../elsewhere/sweeps/quick-1", "..", ".", "", "a b", "a\\b", "x" * 101, "x" * 300):
        with pytest.raises(UserError, match=r"not a valid name for a sweep|100 at most") as caught:
            call(*COMMANDS[command], name)
        assert "\n" not in str(caught.value)
    assert sorted(path.name for path in outside.iterdir()) == ["ledger.jsonl", "space.yaml"]
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("name", ["quick-1", "a", "_", "1.5", "x" * 100, "x" * 100 + "-confirm"])
def test_letters_digits_dots_dashes_and_underscores_are_allowed_in_a_name(name):
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["-y", "--name", ".hidden", "été", "a\n", "x" * 101])
def test_a_name_that_could_be_an_option_or_a_path_is_refused(name):
    with pytest.raises(UserError, match="--name="):
        check_name(name, "--name")


def test_only_a_sweep_or_its_rest_is_removed(elsewhere, tmp_path):
    (elsewhere / "sweeps" / "photos" / "cats").mkdir(parents=True)
    for part in ("trials", "requests"):
        (elsewhere / "sweeps" / "half" / part).mkdir(parents=True)
    target = tmp_path / "elsewhere"
    (target / "trials").mkdir(parents=True)
    (elsewhere / "sweeps" / "link").symlink_to(target)
    with pytest.raises(UserError, match="photos: no such sweep"):
        call("rm", "-y", "photos")
    call("rm", "-y", "half")
    call("rm", "-y", "link")
    assert [path.name for path in (elsewhere / "sweeps").iterdir()] == ["photos"]
    assert (target / "trials").exists()


@pytest.mark.parametrize("storage", ["file", "file/below", "/proc/sweeps", "x" * 300])
@pytest.mark.parametrize("command", [["run", "quick"], ["list"], ["show", "mine"], ["rm", "-y", "mine"]])
def test_a_storage_that_is_not_a_folder_is_refused_and_nothing_is_created(command, storage, elsewhere):
    (elsewhere / "file").touch()
    if command[0] == "run" or storage.startswith("file") or len(storage) > 200:
        with pytest.raises(UserError, match="--storage="):
            call(*command, "--storage", storage)
    assert [path.name for path in elsewhere.iterdir()] == ["file"]


def test_checking_whether_a_folder_can_be_written_leaves_no_file(tmp_path):
    before = sorted(tmp_path.rglob("*"))
    check_folder("--out", tmp_path / "new" / "below")
    check_file("--out", tmp_path / "other" / "file.csv")
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(UserError, match=r"--out=.*this is a folder"):
        check_file("--out", tmp_path)


@pytest.mark.parametrize("uri", ["", "nonsense", "ftp://x/y", "file:./mlruns", "sqlite://", "sqlite:///", "http://"])
def test_an_address_that_is_no_mlflow_store_is_refused_before_a_sweep_starts(uri, elsewhere):
    for command in (["run", "quick"], ["train", "recipe.yaml"]):
        with pytest.raises(UserError, match="--tracking-uri="):
            call(*command, "--tracking-uri", uri)
    assert list(elsewhere.iterdir()) == []


def test_a_database_that_cannot_be_written_and_a_blank_experiment_are_refused(elsewhere):
    (elsewhere / "file").touch()
    with pytest.raises(UserError, match="--tracking-uri=file/below.db: it cannot be written to"):
        check_store("sqlite:///file/below.db", "e")
    with pytest.raises(UserError, match="--experiment="):
        check_store("sqlite:///mlflow.db", " ")
    for good in ("sqlite:////data/m.db", "http://host:5000", "postgresql+psycopg://user@host/db", "databricks"):
        if not good.startswith("sqlite"):
            check_store(good, "e")


HEAVY = "{'torch', 'ray', 'mlflow', 'optuna', 'pandas', 'numpy', 'matplotlib'}"
WRONG = {
    "an export": ["predict", "nothing", "."],
    "a report": ["report", "nothing"],
    "resume": ["resume", "nothing"],
    "export": ["export", "nothing"],
    "show": ["show", "nothing"],
    "rm": ["rm", "nothing"],
    "a warm start": ["run", "quick", "--warm-start", "nothing"],
}


def test_a_wrong_name_is_refused_before_anything_heavy_is_imported():
    code = (
        "import sys; from search.cli.main import app; from training.errors import UserError\n"
        f"for words in {list(WRONG.values())!r}:\n"
        "    try: app(words, standalone_mode=False)\n"
        f"    except UserError as error: print(error, sorted({HEAVY} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count(" []\n") == len(WRONG), done.stdout


def test_a_folder_that_two_callers_made_for_now_stays_as_long_as_one_of_them_needs_it(tmp_path):
    folder = tmp_path / "new" / "below"
    first, second = made_for_now(folder), made_for_now(folder)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert folder.is_dir()
    second.__exit__(None, None, None)
    assert list(folder.iterdir()) == []
    with made_for_now(tmp_path / "other" / "below"):
        assert (tmp_path / "other" / "below").is_dir()
    assert not (tmp_path / "other").exists()
