"""Copies of a sweep at a URI: on a folder, and on a real S3 server on this machine."""

import shutil
import signal
import threading

import boto3
import pytest
from moto.server import ThreadedMotoServer

import search.copies.place as module
from ledger.events import SweepStarted
from ledger.file import Ledger, read_events
from ledger.folder import SweepFolder
from ledger.settings import Settings
from ledger.trials import Trials
from search.copies.ledger_copy import LedgerCopy
from search.copies.place import (
    CopyPlace,
    check_place,
    check_uri,
    fetch_sweep,
    fetch_trial,
    send,
    send_trial,
)
from search.runner.checkpoints import Checkpoints
from tests.made_events import make_event
from tests.real_sweeps import FAST, SPACE, call, check_truth, start, wait_for
from training.errors import UserError


@pytest.fixture(scope="module")
def s3_server():
    """The address of a server with the bucket `sweeps`."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    address = "http://127.0.0.1:{1}".format(*server.get_host_and_port())
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=address, **keys).create_bucket(Bucket="sweeps")
    yield address
    server.stop()


@pytest.fixture
def s3(s3_server, monkeypatch):
    """The bucket `sweeps`, and the environment that finds it."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    return "s3://sweeps"


@pytest.fixture(params=["s3", "file"])
def place(request, tmp_path):
    folder = request.getfixturevalue("s3") if request.param == "s3" else f"file://{tmp_path}/store"
    return CopyPlace(f"{folder}/{tmp_path.name}")


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(module, "FIRST_PAUSE_SECONDS", 0.0)


def test_a_file_comes_back_as_it_was(place, tmp_path):
    (tmp_path / "last.ckpt").write_bytes(bytes(range(256)) * 100_000)  # several parts of an upload
    place.child("trials/0003").write(tmp_path / "last.ckpt")
    (tmp_path / "last.ckpt").unlink()
    assert not place.child("trials/0004").read("last.ckpt", tmp_path / "last.ckpt")
    assert not (tmp_path / "last.ckpt").exists()
    assert place.child("trials/0003").read("last.ckpt", tmp_path / "last.ckpt")
    assert (tmp_path / "last.ckpt").read_bytes() == bytes(range(256)) * 100_000
    place.child("trials/0003").delete("last.ckpt")
    assert not place.child("trials/0003").has("last.ckpt")
    place.child("trials/0003").delete("last.ckpt")


def test_the_weights_of_an_epoch_are_copied_before_the_checkpoint_that_names_them(place, tmp_path, monkeypatch):
    sent = []
    monkeypatch.setattr(module, "send", lambda place, path: sent.append(path.name))
    for name in ("last.ckpt", "best.ckpt", "other"):
        (tmp_path / name).touch()
    send_trial(place, tmp_path, has_new_best=True)
    send_trial(place, tmp_path, has_new_best=False)
    assert sent == ["best.ckpt", "last.ckpt", "last.ckpt"]


def test_a_trial_continues_from_its_copy_unless_it_is_new(place, tmp_path):
    (tmp_path / "last.ckpt").write_text("epoch 3")
    send_trial(place, tmp_path, has_new_best=True)
    (tmp_path / "last.ckpt").write_text("epoch 2, on a machine that it left")
    fetch_trial(place, tmp_path, is_new=False)
    assert (tmp_path / "last.ckpt").read_text() == "epoch 3"
    fetch_trial(place, tmp_path, is_new=True)  # the files are of another recipe with the same number
    assert not (tmp_path / "last.ckpt").exists()
    assert not place.has("last.ckpt")


def test_a_store_that_fails_for_a_moment_is_asked_again(tmp_path, monkeypatch):
    answers = [OSError("throttled")] * 4 + [None]

    def write(self, path):
        if (answer := answers.pop(0)) is not None:
            raise answer

    monkeypatch.setattr(CopyPlace, "write", write)
    send(CopyPlace("s3://sweeps"), tmp_path)
    answers.extend([OSError("throttled")] * 5)
    with pytest.raises(OSError, match="throttled"):
        send(CopyPlace("s3://sweeps"), tmp_path)


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        *(
            (uri, f"^--copy-to={uri}: this is no folder in a store that can be written to.*file:///folder")
            for uri in (
                "sweeps",
                "file://",
                "file:///",
                "file://sweeps",
                "s3://",
                "http://host/x",
                "memory://x",
                "simplecache::file:///x",
                "nope://x",
            )
        ),
        ("s3://key:secret@bucket/x", "a password would be in the ledger"),
    ],
)
def test_an_address_that_is_no_uri_or_has_a_password_is_refused(uri, words):
    with pytest.raises(UserError, match=words):
        check_uri("--copy-to", uri)


def test_a_store_that_cannot_be_written_is_refused_in_one_sentence(s3, tmp_path):
    check_place(f"{s3}/some/folder")
    with pytest.raises(
        UserError, match=r"^--copy-to=s3://nowhere/x: it cannot be written to from \S+ \(.*NO_SUCH_BUCKET[^\n]*\)\.$"
    ):
        check_place("s3://nowhere/x")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"^--copy-to=file://.*: it cannot be written to from \S+ \("):
        check_place(f"file://{tmp_path}/file")


def test_a_sweep_that_is_not_there_or_here_already_is_refused(place, tmp_path):
    with pytest.raises(UserError, match="there is no sweep photos"):
        fetch_sweep(place.uri, tmp_path / "photos")
    (tmp_path / "photos").mkdir()
    with pytest.raises(UserError, match="exists already. Leave --from out"):
        fetch_sweep(place.uri, tmp_path / "photos")


def test_the_space_of_a_preset_is_copied_with_the_ledger(place, tmp_path):
    folder = SweepFolder(tmp_path / "photos-1")
    folder.path.mkdir()
    for path in (folder.ledger, folder.preset):
        path.write_text(path.name)
    LedgerCopy(folder, place.child(folder.name)).close()
    fetch_sweep(place.uri, tmp_path / "here" / "photos-1")
    assert (tmp_path / "here" / "photos-1" / "preset.yaml").read_text() == "preset.yaml"


def test_a_ledger_is_copied_while_it_grows_and_at_the_end(place, tmp_path, monkeypatch):
    folder = SweepFolder(tmp_path / "photos")
    folder.path.mkdir()
    ledger = Ledger(folder.ledger)
    ledger.append(SweepStarted(name="photos", id="1", space=SPACE, settings=Settings()))
    copy = LedgerCopy(folder, place.child("photos"))
    fetch_sweep(place.uri, tmp_path / "first" / "photos")
    assert (tmp_path / "first" / "photos" / "ledger.jsonl").read_bytes() == folder.ledger.read_bytes()
    event = make_event({"event": "close", "state": "interrupted"})
    (tmp_path / "last.ckpt").touch()
    place.child("photos/trials/0003").write(tmp_path / "last.ckpt")
    copy.delete(3, "last.ckpt")
    assert place.child("photos/trials/0003").has("last.ckpt")  # the ledger's copy does not have the trial's end yet
    ledger.append(event)
    copy(event)
    assert copy.close() == ""
    assert not place.child("photos/trials/0003").has("last.ckpt")
    fetch_sweep(place.uri, tmp_path / "second" / "photos")
    assert (tmp_path / "second" / "photos" / "ledger.jsonl").read_bytes() == folder.ledger.read_bytes()


def test_a_copy_that_fails_at_the_end_is_reported(tmp_path):
    folder = SweepFolder(tmp_path / "photos")
    folder.path.mkdir()
    folder.ledger.touch()
    copy = LedgerCopy(folder, CopyPlace(f"file://{tmp_path}/store"))
    shutil.rmtree(tmp_path / "store")
    (tmp_path / "store").touch()
    assert "store" in copy.close()


def test_the_weights_that_are_kept_are_fetched_from_machines_with_another_storage(tmp_path):
    folder, store = SweepFolder(tmp_path / "photos"), CopyPlace(f"file://{tmp_path}/store")
    trials = Trials("val_accuracy")
    for number in range(3):
        recipe = {"epochs": 1, "seed": number}
        report = {"event": "report", "trial": number, "epoch": 1, "best_epoch": 1, "score": number / 10}
        trials.fold(
            make_event({"event": "start", "trial": number, "recipe": recipe, "params": None, "origin": "sampler"})
        )
        trials.fold(make_event({**report, "standard_error": 0.1, "metrics": {}}))
        trials.fold(make_event({"event": "end", "trial": number, "state": "completed"}))
        (tmp_path / "best.ckpt").write_text(str(number))
        store.child(f"trials/{number:04d}").write(tmp_path / "best.ckpt")
    Checkpoints(folder, trials, 2).fetch(store)
    assert [path.read_text() for path in sorted(folder.path.glob("trials/*/best.ckpt"))] == ["1", "2"]


@pytest.mark.cluster
@pytest.mark.timeout(900)
def test_a_sweep_whose_machine_is_lost_goes_on_from_its_copy(s3, tmp_path):
    (tmp_path / "space.yaml").write_text(SPACE)
    options = ("--name", "lost", "--copy-to", f"{s3}/{tmp_path.name}")
    driver = start(tmp_path, "run", "space.yaml", *options, command=FAST)
    ledger = tmp_path / "sweeps" / "lost" / "ledger.jsonl"

    def get_copy() -> list:
        copied = tmp_path / "copied.jsonl"
        return list(read_events(copied)) if CopyPlace(f"{s3}/{tmp_path.name}/lost").read("ledger.jsonl", copied) else []

    try:
        wait_for(ledger, lambda events: sum(event.event == "end" for event in get_copy()) >= 1, driver)
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.communicate()
    copied = get_copy()
    ahead = len(list(read_events(ledger))) - len(copied)
    shutil.rmtree(tmp_path / "sweeps")
    call(tmp_path, "resume", "lost", "--from", f"{s3}/{tmp_path.name}", command=FAST)
    events = list(read_events(ledger))
    assert [event.time for event in events[: len(copied)]] == [event.time for event in copied]
    check_truth(tmp_path, "lost", 6)
    assert [event.time for event in get_copy()] == [event.time for event in events]
    begun = sum(log.read_text().count("Epoch ") for log in (tmp_path / "sweeps" / "lost" / "trials").glob("*/log.txt"))
    reported = sum(event.event == "report" for event in events)
    assert begun <= reported + ahead + 2  # what came after the last copy, and the epochs that ran


def test_the_store_is_named_in_the_ledger_for_a_resume():
    settings = Settings(copy_to="s3://sweeps/team")
    assert settings.masked().copy_to == "s3://sweeps/team"


def test_a_copy_ends_although_it_is_closed_while_it_begins_with_an_event(tmp_path):
    class Closed(threading.Event):
        """Closed between the wait for an event and the moment at which the event is taken."""

        def clear(self):
            copy._is_over.set()
            self.set()
            super().clear()

    folder = SweepFolder(tmp_path / "photos")
    folder.path.mkdir()
    folder.ledger.touch()
    copy = LedgerCopy(folder, CopyPlace(f"file://{tmp_path}/store"))
    copy.close()
    copy._is_over, copy._changed = threading.Event(), Closed()
    thread = threading.Thread(target=copy._go_on, daemon=True)
    thread.start()
    copy._changed.set()
    thread.join(30)
    assert not thread.is_alive()
