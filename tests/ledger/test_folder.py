import gzip
import subprocess
import sys
import threading
import uuid

import pytest
from filelock import FileLock

from ledger.file import Ledger
from ledger.folder import SweepFolder, find_folder, list_folders, new_folder, open_folder
from training.errors import UserError
from training.process.text_files import keep_json, unpack


def make_sweep(storage, name):
    folder = SweepFolder(storage / name)
    folder.path.mkdir(parents=True)
    Ledger(folder.ledger).close()
    return folder


def test_a_default_name_ends_with_the_next_free_number(tmp_path):
    assert new_folder(tmp_path, None, "quick").name == "quick-1"
    make_sweep(tmp_path, "quick-1")
    assert new_folder(tmp_path, None, "quick").name == "quick-2"
    assert [folder.name for folder in list_folders(tmp_path)] == ["quick-1"]


def test_a_name_that_is_taken_is_refused_with_a_correction(tmp_path):
    make_sweep(tmp_path, "mine")
    with pytest.raises(UserError, match=r"--name=mine: .* exists already.*sweep resume mine.*sweep rm mine"):
        new_folder(tmp_path, "mine", "quick")


@pytest.mark.parametrize("name", ["", "a/b", "../x", ".hidden", "a b"])
def test_a_file_in_place_of_a_sweep_folder_is_refused(tmp_path, name):
    with pytest.raises(UserError, match="--name="):
        new_folder(tmp_path, name, "quick")


def test_an_unknown_sweep_is_refused_with_a_list_of_the_known_ones(tmp_path):
    make_sweep(tmp_path, "mine")
    with pytest.raises(UserError, match=r"yours: no such sweep.*There are: mine"):
        open_folder(tmp_path, "yours")


def test_a_second_driver_gets_the_process_that_runs_the_sweep(tmp_path):
    folder = make_sweep(tmp_path, "mine")
    hold = (
        "import sys, time; from pathlib import Path; from ledger.folder import SweepFolder\n"
        f"with SweepFolder(Path({str(folder.path)!r})).locked(): print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        assert folder.is_running()
        with (
            pytest.raises(UserError, match=f"mine is running in process {holder.pid} on .*sweep stop mine"),
            folder.locked(),
        ):
            pass
    finally:
        holder.kill()
        holder.wait()
    assert not folder.is_running()  # a killed process releases the lock
    with folder.locked():
        assert folder.is_running()


def test_a_driver_waits_for_a_command_that_only_looks_whether_the_sweep_runs(tmp_path):
    folder = make_sweep(tmp_path, "mine")
    looking = FileLock(folder.path / "lock", thread_local=False)
    looking.acquire()
    threading.Timer(0.2, looking.release).start()
    with folder.locked():
        assert folder.is_running()


def test_a_driver_that_did_not_name_itself_is_another_process(tmp_path):
    folder = make_sweep(tmp_path, "mine")
    (folder.path / "driver.json").write_text('{"pid": 7}')
    with (
        FileLock(folder.path / "lock"),
        pytest.raises(UserError, match="^mine is running in another process. Stop it first: sweep stop mine"),
        folder.locked(),
    ):
        pass


@pytest.mark.parametrize("part", ["trials/", "ray/", "lock", "space.yaml", "ledger.jsonl"])
def test_a_folder_of_the_user_that_only_has_a_name_of_ours_in_it_is_no_sweep(tmp_path, part):
    (tmp_path / "mine" / "precious").mkdir(parents=True)
    path = tmp_path / "mine" / part
    path.mkdir() if part.endswith("/") else path.write_text("text of the user")
    with pytest.raises(UserError, match="mine: no such sweep"):
        find_folder(tmp_path, "mine")
    assert list_folders(tmp_path) == []


@pytest.mark.parametrize("part", ["trials", "ray"])
def test_a_folder_with_the_users_files_in_trials_or_ray_is_no_sweep(tmp_path, part):
    (tmp_path / "mine" / part / "precious").mkdir(parents=True)
    with pytest.raises(UserError, match="mine: no such sweep"):
        find_folder(tmp_path, "mine")


def test_the_rest_of_a_sweep_without_its_ledger_is_still_a_sweep(tmp_path):
    (tmp_path / "mine" / "trials" / "0007").mkdir(parents=True)
    (tmp_path / "mine" / "ray" / "20261123-205101").mkdir(parents=True)
    for name in ("lock", "space.yaml", "space.yaml.partial", "confirm.html"):
        (tmp_path / "mine" / name).touch()
    assert find_folder(tmp_path, "mine").name == "mine"


@pytest.mark.parametrize("line", [1, 2])
def test_a_sweep_with_a_damaged_line_and_notes_of_the_user_is_still_a_sweep(tmp_path, line):
    folder = make_sweep(tmp_path, "mine")
    (folder.path / "notes.txt").touch()
    lines = [folder.ledger.read_bytes(), b'{"time":1.0,"event":"sweep","name":"mine"}\n']
    lines[line - 1] = b"\0\0\0\n"
    folder.ledger.write_bytes(b"".join(lines))
    assert find_folder(tmp_path, "mine").name == "mine"


STRANGERS = {
    "a ledger of somebody else": {"ledger.jsonl": '{"event": "login"}\n{"event":"logout"}\n', "thesis.txt": "mine"},
    "requests of customers": {"lock": "", "requests/customers.json": "{}"},
    "a thesis": {"trials/": "", "final/thesis.pdf": "mine"},
}


@pytest.mark.parametrize("name", STRANGERS)
def test_a_folder_with_names_of_ours_but_files_of_the_user_is_no_sweep(tmp_path, name):
    for path, text in STRANGERS[name].items():
        file = tmp_path / "mine" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.mkdir(exist_ok=True) if path.endswith("/") else file.write_text(text)
    with pytest.raises(UserError, match="mine: no such sweep"):
        find_folder(tmp_path, "mine")


def test_only_what_a_sweep_makes_is_removed(tmp_path):
    folder = make_sweep(tmp_path, "mine")
    for path in (
        "trials/0007/last.ckpt",
        "trials/notes.txt",
        "requests/1-0a.json",
        "final/best.ckpt",
        f"final/{uuid.uuid4()}/last.ckpt",
        "space.yaml",
        ".git/HEAD",
    ):
        (folder.path / path).parent.mkdir(parents=True, exist_ok=True)
        (folder.path / path).touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "kept").touch()
    (folder.path / "ray").symlink_to(tmp_path / "other")
    assert [path.name for path in folder.remove()] == [".git", "notes.txt"]
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert left == ["mine/.git/HEAD", "mine/trials/notes.txt", "other/kept"]
    other = make_sweep(tmp_path, "another")
    assert other.remove() == []
    assert not other.path.exists()


@pytest.mark.parametrize(
    "part", ["requests", "ray", "trials/0008", "driver.json.partial", "ledger.jsonl", "requests/1-0a.json"]
)
def test_a_sweep_with_a_link_among_its_parts_is_refused(tmp_path, part):
    folder = make_sweep(tmp_path, "mine")
    (tmp_path / "elsewhere").mkdir()
    (folder.path / part).parent.mkdir(exist_ok=True)
    if part == "ledger.jsonl":
        folder.ledger.rename(tmp_path / "elsewhere" / "ledger")
        folder.ledger.symlink_to(tmp_path / "elsewhere" / "ledger")
    else:
        (folder.path / part).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=f"{part}: this part of a sweep is a link"):
        open_folder(tmp_path, "mine")


def test_a_state_file_is_not_written_through_a_link(tmp_path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "driver.json.partial").symlink_to(tmp_path / "precious")
    keep_json(tmp_path / "driver.json", {"pid": 7})
    assert (tmp_path / "precious").read_text() == "mine"
    assert (tmp_path / "driver.json").read_text() == '{"pid": 7}'


def test_a_packed_file_that_would_take_all_memory_is_refused():
    assert unpack(gzip.compress(b"a" * 1000)) == b"a" * 1000
    with pytest.raises(ValueError, match="more than 1 MB"):
        unpack(gzip.compress(b"a" * 1_000_001), 1_000_000)
    for damaged in (b"", b"junk", gzip.compress(b"a" * 1000)[:-4]):
        with pytest.raises(ValueError, match="."):
            unpack(damaged)


def test_a_sweep_is_called_as_a_command_here_finds_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SWEEP_STORAGE", raising=False)
    here, there = SweepFolder(tmp_path / "sweeps" / "mine"), SweepFolder(tmp_path / "my disk" / "mine")
    assert (here.called, there.called) == ("mine", f"mine --storage '{tmp_path}/my disk'")
    assert SweepFolder(there.path, known_running=False).called == "mine"  # that of another machine is in no folder here
    monkeypatch.setenv("SWEEP_STORAGE", f"{tmp_path}/my disk")
    assert (here.called, there.called) == (f"mine --storage {tmp_path}/sweeps", "mine")
