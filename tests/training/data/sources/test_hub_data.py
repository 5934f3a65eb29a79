"""Data sets of the Hugging Face hub, served here by a small server with the parts of its interface that are used."""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub
import pytest

from search.arguments import absolute_paths
from search.cli.inspect.data_source import find_recipe
from spaces.load import load_space
from tests.training.data.sources.test_packed import (
    assert_labels_fit_the_colours,
    rows,
    samples,
    write_parquet,
    write_tar,
)
from training.data.identity import identify
from training.data.load_data import load_data
from training.data.sources.parquet import Parquet
from training.data.sources.webdataset import WebDataset
from training.errors import UserError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = COMMIT[::-1]


class Hub:
    """A server of the files below `folder/OWNER/NAME/REVISION`; it counts requests."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.requests = folder, 0
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                hub.answer(self)

            do_GET = do_HEAD

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.requests += 1
        api, _, path = request.path.partition("?")[0].strip("/").rpartition("datasets/")
        owner, name, kind, revision, *below = path.replace("%2F", "/").replace("refs/convert/parquet", OTHER).split("/")
        folder = self.folder / owner / name / {"main": COMMIT}.get(revision, revision)
        if not folder.is_dir():
            code = "RevisionNotFound" if folder.parent.is_dir() else "RepoNotFound"
            self.send(request, 404, b"{}", {"X-Error-Code": code, "X-Error-Message": "Not found here."})
        elif kind == "resolve":
            content = folder.joinpath(*below).read_bytes()
            self.send(
                request, 200, content, {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": folder.name}
            )
        elif kind == "tree":
            files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
            listed = [
                {"type": "file", "path": str(path.relative_to(folder)), "size": path.stat().st_size, "oid": "0"}
                for path in files
            ]
            self.send(request, 200, json.dumps(listed).encode())
        else:
            assert (api, kind) == ("api/", "revision")
            self.send(request, 200, json.dumps({"id": f"{owner}/{name}", "sha": folder.name}).encode())

    def send(
        self, request: BaseHTTPRequestHandler, status: int, content: bytes, headers: dict[str, str] | None = None
    ) -> None:
        request.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(content))}.items():
            request.send_header(name, value)
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(content)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Serve a data set of three parts, one in two configurations, one with tar files, and one in another format."""
    served = tmp_path / "served"
    for part, count in (("train", 8), ("validation", 4), ("test", 6)):
        write_parquet(served / "we/pets" / COMMIT / f"data/{part}-00000-of-00001.parquet", rows(count))
        write_parquet(served / "we/two" / COMMIT / f"small/{part}.parquet", rows(count))
        write_parquet(served / "we/two" / COMMIT / f"large/{part}.parquet", rows(2 * count))
        write_tar(served / "we/shards" / COMMIT / f"{part}-0.tar", samples(count))
        write_parquet(served / "we/zipped" / OTHER / f"default/{part}/0000.parquet", rows(count))
    (served / "we/zipped" / COMMIT).mkdir()
    (served / "we/zipped" / COMMIT / "photos.zip").write_bytes(b"zip")
    running = Hub(served)
    address = f"http://127.0.0.1:{running.server.server_port}"
    template = huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", address)
    monkeypatch.setattr(
        huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template.replace("https://huggingface.co", address)
    )
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    yield running
    running.server.shutdown()
    running.server.server_close()


def sizes(root, kind=Parquet):
    data = load_data(kind(root=root))
    assert_labels_fit_the_colours(data)
    return [len(part) for part in (data.train, data.val, data.test)]


def test_a_data_set_is_read_by_its_name(hub):
    assert sizes("hf://datasets/we/pets") == [8, 4, 6]


def test_parts_that_cannot_be_used_do_not_prevent_the_use_of_the_others(hub):
    folder = hub.folder / "we/public" / COMMIT
    write_parquet(folder / "data/train-00000-of-00001.parquet", rows(20))
    write_parquet(folder / "data/test-00000-of-00001.parquet", [(image, -1) for image, _ in rows(6)])
    write_parquet(folder / "data/unsupervised-00000-of-00001.parquet", [(image, -1) for image, _ in rows(6)])
    assert sizes("hf://datasets/we/public") == [14, 3, 3]
    said = [remark.short for remark in load_data(Parquet(root="hf://datasets/we/public")).remarks]
    assert said == ["data/unsupervised-00000-of-00001.parquet not used", "test has no labels and is left out"]


def test_tar_files_of_the_hub_are_read(hub):
    assert sizes("hf://datasets/we/shards", WebDataset) == [8, 4, 6]


def test_a_folder_chooses_one_of_several_configurations(hub):
    assert sizes("hf://datasets/we/two/large") == [16, 8, 12]


def test_without_parquet_files_the_copy_that_the_hub_makes_is_read(hub):
    assert sizes("hf://datasets/we/zipped") == [8, 4, 6]
    assert sizes("hf://datasets/we/zipped@refs/convert/parquet/default") == [8, 4, 6]


def test_what_was_downloaded_once_is_read_without_the_hub(hub):
    spec = Parquet(root="hf://datasets/we/pets")
    before = identify(load_data(spec), spec)
    hub.server.shutdown()
    count = hub.requests
    assert identify(load_data(spec), spec) == before
    assert hub.requests == count
    assert before["source"] == "hf://datasets/we/pets"


def test_an_interrupted_download_is_completed(hub, tmp_path):
    sizes("hf://datasets/we/pets")
    (broken,) = (tmp_path / "cache").rglob("test-00000-of-00001.parquet")
    broken.unlink()
    assert sizes("hf://datasets/we/pets") == [8, 4, 6]


@pytest.mark.parametrize(
    ("root", "sentence"),
    [
        ("hf://datasets/we/none", "the Hugging Face hub refuses it (Not found here)"),
        ("hf://datasets/we/pets@v2", "it has no revision v2"),
        ("hf://datasets/we/pets/empty", "it has no .parquet or .arrow file"),
        ("hf://we/pets", "this is the address of a model, not of a data set"),
        ("hf://datasets/pets", "this is no address of a data set"),
    ],
)
def test_a_wrong_address_ends_in_one_sentence(hub, root, sentence):
    with pytest.raises(UserError) as failure:
        load_data(Parquet(root=root))
    assert str(failure.value).startswith(f"data.root={root}: {sentence}. ")
    assert "\n" not in str(failure.value)


def test_without_a_network_the_sentence_names_the_hub(hub):
    hub.server.shutdown()
    hub.server.server_close()
    with pytest.raises(UserError, match=r"not complete on this machine, and the Hugging Face hub does not answer"):
        load_data(Parquet(root="hf://datasets/we/pets"))


def test_the_address_is_no_path_for_spaces_and_for_the_data_command(hub):
    root = "hf://datasets/we/pets"
    assert find_recipe(root, []).data == Parquet(root=root)
    space = absolute_paths(load_space("card", [f"data={{name: parquet, root: '{root}'}}"]))
    assert space.recipe["data"]["root"] == root
