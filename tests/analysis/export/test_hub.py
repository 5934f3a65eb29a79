"""The export of a timm model is a model folder of the Hugging Face hub."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import huggingface_hub
import pytest
import torch

from analysis.export.bundle import read_export
from analysis.export.hub import check_repository, create_repository, push_export
from training.errors import UserError
from training.recipe import read_recipe


@pytest.mark.slow
@pytest.mark.parametrize("name", ["test_resnet", "test_vit"])
def test_timm_alone_loads_an_export_in_one_line_and_gives_the_same_logits(name, exported, make_export, stranger):
    if name == "test_vit":  # the size of its images is fixed, and is an argument of the model
        exported = make_export(backbone={"name": name, "weights": "none"}, preprocessing={"crop": 0.9}, epochs=1)
    found = read_export(exported)
    code = (
        "import timm, torch, json\n"
        f'model = timm.create_model("local-dir:{exported}", pretrained=True).eval()\n'
        "config = timm.data.resolve_model_data_config(model)\n"
        "images = torch.randn(4, *config['input_size'], generator=torch.Generator().manual_seed(0))\n"
        "with torch.inference_mode(): logits = model(images).tolist()\n"
        "print(json.dumps([logits, config, model.pretrained_cfg['label_names']]))\n"
    )
    logits, config, labels = json.loads(stranger(code, exported.parent))
    summary = found.summary
    assert labels == summary["classes"]
    assert config["input_size"] == summary["input_size"]
    assert [config[key] for key in ("mean", "std", "crop_pct")] == [summary[key] for key in ("mean", "std", "crop")]
    assert config["interpolation"] == summary["interpolation"]
    images = torch.randn(4, *summary["input_size"], generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        assert torch.allclose(found.model(images), torch.tensor(logits), atol=1e-6)


def test_the_weights_are_written_once_and_the_readme_is_the_card(exported):
    assert {path.name for path in exported.iterdir() if path.suffix not in (".onnx", ".png")} == {
        *("recipe.yaml", "summary.json", "MODEL_CARD.md", "README.md", "config.json", "model.safetensors")
    }
    readme, card = (exported / "README.md").read_text(), (exported / "MODEL_CARD.md").read_text()
    assert readme.startswith("---\nlibrary_name: timm\n")
    assert 'timm.create_model("local-dir:.", pretrained=True)' in readme
    assert set(card.splitlines()) < set(readme.splitlines())


def test_a_torchvision_model_has_no_folder_of_the_hub(make_export):
    folder = make_export(backbone={"source": "torchvision", "name": "shufflenet_v2_x0_5", "weights": "none"}, epochs=1)
    assert not (folder / "config.json").exists()
    assert not (folder / "README.md").exists()
    with pytest.raises(UserError, match="--push-to-hub=me/digits: the trial is a model of torchvision"):
        check_repository("me/digits", read_export(folder).recipe)


def test_a_name_that_is_no_repository_is_refused():
    with pytest.raises(UserError, match="--push-to-hub=a/b/c: this is not the name of a repository"):
        check_repository("a/b/c", read_recipe({"data": {"name": "digits"}}))


@pytest.fixture
def hub(monkeypatch):
    """Serve a hub on this machine that answers every request with `hub.answer`, and keeps the requests."""

    class Hub(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            server.seen.append((self.path, json.loads(body)))
            status, answer = server.answer
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *arguments):
            pass

    server = HTTPServer(("127.0.0.1", 0), Hub)
    server.seen = []
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def test_a_new_repository_is_private_and_a_refusal_names_the_login(hub):
    hub.answer = 200, {"url": "https://huggingface.co/me/digits"}
    assert "me/digits" in create_repository("me/digits")
    [(path, body)] = hub.seen
    assert path == "/api/repos/create"
    assert body.get("private") is True or body.get("visibility") == "private"
    hub.answer = 401, {"error": "Invalid credentials"}
    with pytest.raises(UserError, match=r"--push-to-hub=me/digits: .* refuses it \(status 401\). Log in"):
        create_repository("me/digits")


def test_without_a_network_one_sentence_names_the_way_out(exported, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    for push in (lambda: create_repository("me/digits"), lambda: push_export(exported, "me/digits")):
        with pytest.raises(UserError, match=r"--push-to-hub=me/digits: .* cannot be reached .* hf upload REPO FOLDER"):
            push()


def test_the_whole_export_is_uploaded(exported, monkeypatch):
    uploaded = {}
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", lambda self, **options: uploaded.update(options))
    push_export(exported, "me/digits")
    assert (uploaded["repo_id"], uploaded["folder_path"]) == ("me/digits", exported)
