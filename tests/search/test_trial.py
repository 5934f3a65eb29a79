import json
import socket
import sys

from search.trial import bootstrap, killed_for_memory


def test_a_worker_that_the_system_killed_for_memory_is_recognised_on_its_machine(tmp_path):
    assert not killed_for_memory(tmp_path)  # the first worker of a trial
    assert not killed_for_memory(tmp_path)  # a worker that died of something else
    mark = json.loads((tmp_path / "worker.json").read_text())
    (tmp_path / "worker.json").write_text(json.dumps({**mark, "kills": mark["kills"] - 1}))
    assert killed_for_memory(tmp_path)
    (tmp_path / "worker.json").write_text(json.dumps({"host": f"not-{socket.gethostname()}", "kills": -1}))
    assert not killed_for_memory(tmp_path)


def test_a_worker_finds_our_packages_before_those_of_the_working_folder(tmp_path, monkeypatch):
    (tmp_path / "module_of_ours.py").write_text("def name(x): return 'ours' + x")
    monkeypatch.setattr(sys, "path", ["somewhere", *sys.path])
    assert bootstrap(str(tmp_path), "module_of_ours", "name")("!") == "ours!"
    assert sys.path[0] == str(tmp_path)
