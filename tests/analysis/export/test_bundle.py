"""An export is self-contained: without this project it loads and reproduces its score, in every format."""

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import timm
import torch
from markdown_it import MarkdownIt
from PIL import Image

from analysis.export.bundle import export_recipe, read_export, write_summary
from analysis.export.classifier import load_classifier
from analysis.export.model_card import describe
from analysis.export.onnx_export import export_onnx, quantise
from analysis.export.prediction import Options, predict_images
from analysis.export.served_model import ServedClassifier
from training.data.files.decode import read_image
from training.data.load_data import load_data
from training.data.pipelines.loaders import make_eval_loader
from training.data.preprocessing.transform import fit, normalise
from training.errors import UserError
from training.evaluate import restore_model
from training.recipe import Recipe, read_recipe
from training.techniques.model.flip_average import FlipAverage


def summary_of(export):
    return json.loads((export / "summary.json").read_text())


def code_of_card(export):
    return re.search(r"```python\n(.*?)```", (export / "MODEL_CARD.md").read_text(), re.DOTALL)[1]


@pytest.fixture
def accuracy_of(validation_files, tmp_path):
    """A function that labels the validation images with an export, and returns the share of right labels."""

    def measure(export, *options):
        predict_images(export, validation_files, tmp_path / "out.csv", *options)
        rows = list(csv.DictReader((tmp_path / "out.csv").open(encoding="utf-8")))
        return np.mean([row["file"].split("/")[0] == row["label"] for row in rows])

    return measure


@pytest.fixture(scope="module")
def averaged(make_export):
    """Train so little that the mirror images of digits change the predictions."""
    return make_export(flip_average={"enabled": True}, epochs=1)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["timm", "torchvision"])
def test_the_five_lines_of_the_card_reproduce_the_score_without_this_project(
    source, exported, make_export, validation_files, stranger
):
    if source == "torchvision":
        exported = make_export(
            backbone={"source": "torchvision", "name": "shufflenet_v2_x0_5", "weights": "none"}, epochs=1
        )
    code = code_of_card(exported)
    assert len([line for line in code.splitlines() if line and "import" not in line]) == 5
    counting = (
        "from pathlib import Path\n"
        "import torch\n"
        f"files = sorted(Path({str(validation_files)!r}).glob('*/*.png'))\n"
        "batch = torch.stack([transform(Image.open(file).convert('RGB')) for file in files])\n"
        "with torch.inference_mode(): found = model(batch).argmax(1)\n"
        "print(sum(int(file.parent.name) == int(label) for file, label in zip(files, found)) / len(files))\n"
    )
    whole = "from PIL import Image\nImage.new('RGB', (50, 40)).save('image.png')\n" + code + counting
    printed = stranger(whole, exported).splitlines()
    assert float(printed[1]) == pytest.approx(summary_of(exported)["score"], abs=1e-9)
    assert printed[0].split()[0] in summary_of(exported)["classes"]


def test_predict_reproduces_the_score_and_writes_every_probability(exported, validation_files, tmp_path, accuracy_of):
    assert predict_images(exported, validation_files, tmp_path / "out.csv") == (350, [])
    assert accuracy_of(exported) == pytest.approx(summary_of(exported)["score"])
    for row in list(csv.DictReader((tmp_path / "out.csv").open()))[:20]:
        shares = {
            name.removeprefix("probability_"): float(p) for name, p in row.items() if name.startswith("probability_")
        }
        assert sum(shares.values()) == pytest.approx(1, abs=1e-4)
        assert max(shares, key=shares.get) == row["label"]
        assert shares[row["label"]] == float(row["probability"])


@pytest.mark.slow
def test_every_form_of_an_export_averages_over_mirror_images(averaged, accuracy_of, stranger):
    """Only then do they reproduce the score. The plain weights give another one."""
    import onnxruntime

    found, score = read_export(averaged), summary_of(averaged)["score"]
    data = load_data(found.recipe.data)
    assert accuracy_of(averaged) == pytest.approx(score)
    export_onnx(found, data)
    images, _ = next(iter(make_eval_loader(data.val, found.recipe, workers=0)))
    logits = onnxruntime.InferenceSession(averaged / "model.onnx").run(None, {"images": images.numpy()})[0]
    without = found.recipe.model_copy(update={"flip_average": FlipAverage()})
    plain = restore_model(without, found.model.state_dict(), 10)
    with torch.inference_mode():
        expected = (plain(images) + plain(images.flip(3))) / 2
        assert (plain(images).argmax(1) != expected.argmax(1)).any()
    assert np.allclose(logits, expected, atol=1e-4)
    served = ServedClassifier()
    served.summary, served.models = found.summary, [plain]
    assert torch.allclose(served.probabilities_of(images), expected.softmax(1))
    code = "from PIL import Image\nImage.new('RGB', (50, 40)).save('image.png')\n" + code_of_card(averaged)
    assert "plain(images.flip(3))" in code
    assert stranger(code, averaged).split()[0] in found.classes


def test_the_card_names_a_test_only_where_images_were_kept_for_one(exported):
    found = read_export(exported)
    without = found.recipe.model_copy(update={"data": found.recipe.data.model_copy(update={"split_test": False})})
    with_test, no_test = describe(found.recipe, found.summary), describe(without, found.summary)
    assert "into training, validation and test." in with_test
    assert "`sweep confirm` scores it" in with_test
    assert "into training and validation." in no_test
    assert "No images were kept for a test. `sweep evaluate`" in no_test
    assert "confirm" not in no_test


def test_the_interval_on_the_card_ends_at_all_or_nothing(exported):
    found = read_export(exported)
    for score, interval in ((1.0, "99.2 % to 100.0 %"), (0.0, "0.0 % to 0.8 %")):
        card = describe(found.recipe, {**found.summary, "score": score, "standard_error": 0.004})
        assert f"95 % interval {interval} over images" in card


def test_the_code_of_the_card_finds_a_backbone_of_a_plugin(exported):
    found = read_export(exported)
    card = describe(found.recipe, {**found.summary, "backbone": {"source": "own", "name": "net", "arguments": {}}})
    names: dict[str, object] = {}
    exec("\n".join(re.findall(r"^from training.*", card, re.MULTILINE)), names)
    assert callable(names["load"])
    assert 'model = list_own("backbone")["net"]().build(10, ' in card


@pytest.mark.slow
def test_every_form_of_an_export_of_snapshots_averages_the_probabilities_of_its_members(
    make_export, accuracy_of, stranger
):
    import onnxruntime
    from safetensors.torch import load_file

    cycles = {"name": "cosine_restarts", "cycles": 2}
    fields = {"snapshots": {"members": 2}, "schedule": cycles, "flip_average": {"enabled": True}}
    export = make_export(**fields, optimizer={"name": "momentum", "lr": 0.01})
    summary, found = summary_of(export), read_export(export)
    assert summary["members"] == 2
    assert "2 times the memory and the time of one" in (export / "MODEL_CARD.md").read_text()
    assert accuracy_of(export) == pytest.approx(summary["score"])
    data = load_data(found.recipe.data)
    images, _ = next(iter(make_eval_loader(data.val, found.recipe, workers=0)))
    members = [timm.create_model("test_resnet", num_classes=10).eval() for _ in range(2)]
    torch.nn.ModuleList(members).load_state_dict(load_file(export / "model.safetensors"))
    with torch.inference_mode():
        expected = torch.stack([(one(images) + one(images.flip(3))).div(2).softmax(1) for one in members]).mean(0)
    assert not torch.allclose(members[0](images).softmax(1), members[1](images).softmax(1), atol=0.01)
    export_onnx(found, data)
    (logits,) = onnxruntime.InferenceSession(export / "model.onnx").run(None, {"images": images.numpy()})
    assert np.allclose(torch.from_numpy(logits).softmax(1), expected, atol=1e-4)
    assert accuracy_of(export, Options("onnx")) == pytest.approx(summary["score"])
    served = ServedClassifier()
    files = {"summary": export / "summary.json", "weights": export / "model.safetensors"}
    served.load_context(SimpleNamespace(artifacts=files))
    with torch.inference_mode():
        assert torch.allclose(served.probabilities_of(images), expected, atol=1e-6)
    code = "from PIL import Image\nImage.fromarray(__import__('numpy').zeros((32, 32, 3), 'uint8')).save('image.png')\n"
    label, probability = stranger(code + code_of_card(export), export).split()
    black = served.prepare((export / "image.png").read_bytes())[None]
    with torch.inference_mode():
        shares = served.probabilities_of(black)[0]
    assert label == found.classes[int(shares.argmax())]
    assert float(probability) == pytest.approx(float(shares.max()), abs=1e-5)


@pytest.mark.slow
def test_every_form_of_an_export_predicts_at_the_size_of_the_evaluation(make_export, accuracy_of, stranger):
    import onnxruntime

    export = make_export(evaluation_size={"factor": 1.25}, epochs=1)
    summary = summary_of(export)
    assert summary["input_size"] == [3, 40, 40]
    assert accuracy_of(export) == pytest.approx(summary["score"])
    found = read_export(export)
    data = load_data(found.recipe.data)
    assert export_onnx(found, data)["images"] == 350
    (asked,) = onnxruntime.InferenceSession(export / "model.onnx").get_inputs()
    assert asked.shape[1:] == [3, 40, 40]
    code = "from PIL import Image\nImage.new('RGB', (50, 40)).save('image.png')\n" + code_of_card(export)
    assert stranger(code + "print(transform(Image.open('image.png')).shape[-1])\n", export).split()[-1] == "40"


SLOW = {"name": "momentum", "lr": 0.01}
CHANGED_WEIGHTS = {
    "merged adapters": {"lora": {"rank": 2}, "unfreeze": {"level": "last"}, "optimizer": SLOW},
    "an exponential average": {"averaging": {"name": "ema", "half_life": 0.2}, "optimizer": SLOW},
    "an average of the last epochs": {"averaging": {"name": "swa", "start": 0.5}, "epochs": 3, "optimizer": SLOW},
    "another layout": {"channels_last": {"enabled": True}},
}


RARE = {"an average of the last epochs", "another layout"}


@pytest.mark.parametrize(
    "change", [pytest.param(c, marks=pytest.mark.slow) if c in RARE else c for c in CHANGED_WEIGHTS]
)
def test_weights_of_a_technique_load_into_the_plain_model_and_reproduce_the_score(change, make_export, accuracy_of):
    exported = make_export(**CHANGED_WEIGHTS[change])
    assert accuracy_of(exported) == pytest.approx(summary_of(exported)["score"], abs=1e-6)


def test_predict_turns_photos_upright_names_bad_files_and_accepts_any_file_name(exported, validation_files, tmp_path):
    folder = tmp_path / "фото 写真"
    folder.mkdir()
    image = Image.open(next((validation_files / "7").iterdir()))
    image.save(folder / "straight.png")
    exif = Image.Exif()
    exif[0x0112] = 6  # the viewer must turn it by 90° to the right
    image.rotate(90, expand=True).save(folder / "gedreht ü.png", exif=exif)
    (folder / "broken.jpg").write_bytes(b"\xff\xd8\xff half a file")
    (folder / "notes.txt").write_text("not an image")
    count, unreadable = predict_images(exported, folder, tmp_path / "out.csv")
    rows = {row.pop("file"): row for row in csv.DictReader((tmp_path / "out.csv").open(encoding="utf-8"))}
    assert count == 2
    assert len(unreadable) == 1
    assert "broken.jpg" in unreadable[0]
    assert rows["gedreht ü.png"] == rows["straight.png"]


def test_predict_labels_one_image_and_refuses_a_pipe(exported, validation_files, tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    shutil.copy(next((validation_files / "7").iterdir()), folder / "one.png")
    os.mkfifo(folder / "pipe.png")
    assert predict_images(exported, folder / "one.png", tmp_path / "one.csv") == (1, [])
    assert predict_images(exported, folder, tmp_path / "all.csv") == (1, [])
    assert (tmp_path / "one.csv").read_text() == (tmp_path / "all.csv").read_text()
    count, [said] = predict_images(exported, folder / "pipe.png", tmp_path / "pipe.csv")
    assert count == 0
    assert "not a regular file" in said


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (".", "Is a directory"),
        ("file/out.csv", "Not a directory"),
        ("x" * 300, "File name too long"),
    ],
)
def test_predict_refuses_a_table_that_cannot_be_written(out, words, exported, validation_files, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=rf"--out=.*it cannot be written to \({words}\)"):
        predict_images(exported, validation_files / "7", tmp_path / out)


def test_predict_refuses_a_folder_that_is_no_export_and_a_folder_without_images(exported, validation_files, tmp_path):
    with pytest.raises(UserError, match="not an export with weights, as recipe.yaml is missing"):
        predict_images(tmp_path, validation_files, tmp_path / "out.csv")
    with pytest.raises(UserError, match="no image in it"):
        predict_images(exported, tmp_path, tmp_path / "out.csv")
    shutil.copytree(exported, tmp_path / "damaged")
    (tmp_path / "damaged" / "model.safetensors").write_bytes(b"cut short")
    with pytest.raises(UserError, match="the export is damaged"):
        predict_images(tmp_path / "damaged", validation_files, tmp_path / "out.csv")


@pytest.mark.parametrize("name", ["test_resnet", pytest.param("test_vit", marks=pytest.mark.slow)])
def test_onnx_gives_the_same_logits_and_int8_reports_the_loss_of_accuracy(name, exported, make_export):
    import onnx
    import onnxruntime

    folder = exported
    if name == "test_vit":
        folder = make_export(
            backbone={"name": name, "weights": "none"}, optimizer={"name": "adamw", "lr": 0.002}, epochs=4
        )
    found = read_export(folder)
    data = load_data(found.recipe.data)
    facts = export_onnx(found, data)
    assert facts["images"] == 350
    assert facts["largest_difference"] < 1e-3
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    assert session.run(None, {"images": np.zeros((3, 3, 32, 32), np.float32)})[0].shape == (3, 10)
    known = {entry.key: json.loads(entry.value) for entry in onnx.load(folder / "model.onnx").metadata_props}
    assert known["mean"] == found.summary["mean"]
    int8 = quantise(found, data)
    assert int8["val_accuracy_float32"] == pytest.approx(found.summary["score"])
    assert int8["val_accuracy"] > found.summary["score"] - 0.05
    assert int8["megabytes"] < 0.4 * int8["megabytes_float32"]
    graph = onnx.load(folder / "model.int8.onnx").graph
    assert "QuantizeLinear" in [node.op_type for node in graph.node]
    # 7 bits, so that two products fit into the 16 bits of a CPU without VNNI.
    stored = [onnx.numpy_helper.to_array(one) for one in graph.initializer if one.data_type == onnx.TensorProto.INT8]
    largest = [int(np.abs(weights.astype(int)).max()) for weights in stored if weights.ndim > 1]
    assert set(largest) == {64}


def test_a_model_whose_onnx_form_gives_other_logits_is_refused(exported, monkeypatch):
    from analysis.export import onnx_export

    found = read_export(exported)
    monkeypatch.setattr(onnx_export, "open_onnx", lambda *_: lambda images: torch.zeros(len(images), 10))
    with pytest.raises(RuntimeError, match="its logits differ"):
        export_onnx(found, load_data(found.recipe.data))


@pytest.mark.slow  # MLflow warns once in a process, and sets filters of its own
def test_the_class_that_mlflow_serves_brings_no_warning_of_mlflow():
    command = [sys.executable, "-c", "import analysis.export.served_model"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stderr == ""


@pytest.mark.slow
def test_a_registered_model_loads_and_predicts_without_this_project(
    exported, validation_files, tmp_path, stranger, monkeypatch
):
    import mlflow
    from mlflow import MlflowClient
    from mlflow.tracking import fluent
    from mlflow.tracking._tracking_service import utils
    from mlflow.utils.thread_utils import ThreadLocalVariable

    from analysis.export.registry import register

    found = read_export(exported)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    own = f"sqlite:///{tmp_path}/own.db"  # the caller's store, experiment and run
    monkeypatch.setattr(utils, "_tracking_uri", own)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", own)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", "7")
    active = SimpleNamespace(info=SimpleNamespace(run_id="mine"))
    monkeypatch.setattr(fluent, "_active_run_stack", stack := ThreadLocalVariable(list))
    stack.get().append(active)
    client, data = MlflowClient(uri), load_data(found.recipe.data)
    run = client.create_run(client.create_experiment("e"), run_name="0007").info.run_id
    for number, run_id in enumerate([None, run], start=1):
        found.summary["mlflow_run_id"] = run_id
        address = register(found, data, name="digits", tracking_uri=uri, experiment="e")
        assert address == f"models:/digits/{number}"
        made = client.get_model_version("digits", str(number))
        assert (made.status, made.run_id or None) == ("READY", run_id)
    assert (mlflow.get_tracking_uri(), mlflow.active_run()) == (own, active)
    assert not (tmp_path / "own.db").exists()
    assert (os.environ["MLFLOW_TRACKING_URI"], os.environ["MLFLOW_EXPERIMENT_ID"]) == (own, "7")
    [output] = client.get_run(run).outputs.model_outputs
    logged = client.get_logged_model(output.model_id)
    assert (logged.status, logged.source_run_id, logged.name) == ("READY", run, "digits")
    assert json.loads(logged.tags["mlflow.modelVersions"]) == [{"name": "digits", "version": 2}]
    code = (
        "import os\nos.environ['MLFLOW_DISABLE_TELEMETRY'] = 'true'\n"
        "import mlflow, pandas as pd\nfrom pathlib import Path\n"
        f"mlflow.set_tracking_uri({uri!r})\n"
        f"model = mlflow.pyfunc.load_model({address!r})\n"
        f"files = sorted(Path({str(validation_files)!r}).glob('*/*.png'))\n"
        "found = model.predict(pd.DataFrame({'image': [file.read_bytes() for file in files]}))\n"
        "print(sum(file.parent.name == label for file, label in zip(files, found['label'])) / len(files))\n"
        "print(len(found['probabilities'][0]), model.metadata.signature is not None)\n"
    )
    printed = stranger(code, tmp_path).splitlines()
    assert float(printed[-2]) == pytest.approx(found.summary["score"])
    assert printed[-1] == "10 True"


def test_an_export_replaces_its_own_recipe_and_no_other(tmp_path):
    own, mine = tmp_path / "own", tmp_path / "mine"
    export_recipe(Recipe(), own)
    export_recipe(Recipe(epochs=3), own)
    assert "epochs: 3" in (own / "recipe.yaml").read_text()
    mine.mkdir()
    (mine / "recipe.yaml").write_text("format: 1\nrecipe: {epochs: 7}\n")
    with pytest.raises(UserError, match=r"--out=.*mine/recipe.yaml is not from an export.* Name a new folder"):
        export_recipe(Recipe(), mine)
    (own / "notes.txt").write_text("The recipe is a copy here, in a folder of somebody's own.")
    with pytest.raises(UserError, match="Name a new folder"):
        export_recipe(Recipe(), own)


def test_the_card_says_how_many_weights_were_missing_at_the_start(make_export, exported, tmp_path):
    state = timm.create_model("test_resnet", num_classes=10).state_dict()
    del state["layer4.0.conv1.weight"], state["layer4.0.conv2.weight"]
    torch.save(state, tmp_path / "weights.pt")
    export = make_export(backbone={"name": "test_resnet", "weights": str(tmp_path / "weights.pt")}, epochs=1)
    assert re.search(r"lacked \d\.\d % of the backbone's tensors", (export / "MODEL_CARD.md").read_text())
    assert "lacked" not in (exported / "MODEL_CARD.md").read_text()


def test_the_code_of_the_card_builds_the_head_of_attention_pooling(make_export, monkeypatch):
    export = make_export(attention_pooling={"heads": 4}, epochs=1)
    monkeypatch.chdir(export)
    Image.new("RGB", (50, 40)).save("image.png")
    space = {}
    exec(code_of_card(export), space)
    found = read_export(export).model
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(space["model"].eval()(images), found(images))
    assert not (export / "config.json").exists()  # timm alone cannot load it


@pytest.mark.parametrize("source", ["timm", "torchvision"])
@pytest.mark.parametrize("mode", ["squash", "border"])
def test_the_card_and_a_registered_model_prepare_images_by_the_crop_mode(make_export, tmp_path, mode, source):
    name = "test_resnet" if source == "timm" else "shufflenet_v2_x0_5"
    backbone = {"source": source, "name": name, "weights": "none"}
    export = make_export(backbone=backbone, preprocessing={"crop_mode": mode, "crop": 0.9}, epochs=1)
    rows, columns = np.mgrid[:40, :100]
    pixels = np.stack([rows * 6, columns * 2, 255 - columns * 2], axis=-1).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "image.png")
    found = read_export(export)
    expected = normalise(fit(pixels, found.recipe.evaluation_preprocessing)[None], found.recipe.preprocessing)[0]
    served = ServedClassifier()
    served.summary = found.summary
    torch.testing.assert_close(served.prepare((tmp_path / "image.png").read_bytes()), expected, atol=1e-5, rtol=0)
    lines = [line for line in code_of_card(export).splitlines() if "import" in line or line.startswith("transform =")]
    space = {}
    exec("\n".join(lines), space)  # the code of the card
    ours = space["transform"](Image.fromarray(pixels))
    assert float((ours - expected).abs().mean()) < 0.15  # torchvision pads at another half pixel


def test_the_model_in_the_registry_has_the_limits_and_the_pixels_of_the_other_readers(exported, tmp_path):
    from mlflow.exceptions import MlflowException

    from analysis.export import served_model
    from training.data.files import decode, metadata

    assert served_model.TURNS == metadata.TURNS
    for name in ("MAX_PIXELS", "MAX_RATIO", "FORMATS"):
        assert getattr(served_model, name) == getattr(decode, name)
    served = served_model.ServedClassifier()
    served.summary = read_export(exported).summary
    pixels = np.random.default_rng(0).integers(0, 256, (70, 50, 4), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    classifier = load_classifier(exported, device="cpu")
    (tmp_path / "image").write_bytes(stream.getvalue())
    image = classifier.prepare(read_image(str(tmp_path / "image")))
    expected = normalise(image[None], classifier.recipe.evaluation_preprocessing)[0]
    assert np.allclose(served.prepare(stream.getvalue()), expected, atol=1e-6)
    stream = io.BytesIO()
    Image.new("L", (151, 1)).save(stream, "PNG")
    with pytest.raises(MlflowException, match="151×1 pixels"):
        served.prepare(stream.getvalue())


def test_the_model_in_the_registry_turns_photographs_upright(exported, tmp_path):
    ramp, exif, stream = (np.linspace(0, 255, 70 * 50).reshape(70, 50)).astype(np.uint8), Image.Exif(), io.BytesIO()
    exif[274] = 6
    Image.fromarray(ramp).save(stream, "JPEG", quality=95, exif=exif)
    served, classifier = ServedClassifier(), load_classifier(exported, device="cpu")
    served.summary = read_export(exported).summary
    (tmp_path / "image").write_bytes(stream.getvalue())
    pixels = classifier.prepare(read_image(str(tmp_path / "image")))
    expected = normalise(pixels[None], classifier.recipe.evaluation_preprocessing)[0]
    torch.testing.assert_close(served.prepare(stream.getvalue()), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", [np.uint16, np.int32, np.float32])
def test_the_model_in_the_registry_refuses_deep_grey_levels_in_a_sentence(exported, kind):
    from mlflow.exceptions import MlflowException

    served, stream = ServedClassifier(), io.BytesIO()
    served.summary = read_export(exported).summary
    Image.fromarray(np.ones((40, 40), kind)).save(stream, "TIFF")
    with pytest.raises(MlflowException, match="photographs of 8 bits a channel"):
        served.prepare(stream.getvalue())


@pytest.mark.parametrize("channels", [3, 4])
def test_the_model_in_the_registry_refuses_colours_of_12_bits_and_reads_those_of_16(exported, channels):
    import cv2
    from mlflow.exceptions import MlflowException

    served = ServedClassifier()
    served.summary = read_export(exported).summary
    levels = np.random.default_rng(0).integers(0, 4096, (40, 40, channels)).astype(np.uint16)
    with pytest.raises(MlflowException, match="photographs of 8 bits a channel"):
        served.prepare(cv2.imencode(".png", levels)[1].tobytes())
    bright = levels * 16
    bright[..., 3:] = 65535
    assert served.prepare(cv2.imencode(".png", bright)[1].tobytes()).shape[0] == 3


def test_names_and_paths_are_text_on_the_card_and_neither_html_nor_links(exported, tmp_path):
    names = [
        "<script>alert(1)</script>",
        "[cat](javascript:alert(1))",
        "`` ` <img src=x onerror=alert(1)>",
        "dog\n\n# <b>heading</b>\n```\n<i>",
        "<javascript:alert(1)>",
    ]
    found = read_export(exported)
    path = "photos`\n```\n<script>alert(2)</script>\n```\n"
    recipe = read_recipe({**found.recipe.model_dump(), "data": {"name": "image_folder", "root": path}})
    write_summary(recipe, {**found.summary, "classes": names}, tmp_path)
    for file in ("MODEL_CARD.md", "README.md"):
        page = MarkdownIt().render((tmp_path / file).read_text())
        assert re.findall(r"<(?!/?(?:h1|h2|p|pre|code|hr|ul|li)\b)[^>]*>", page) == []
        assert "<code>[cat](javascript:alert(1))</code>" in page
        assert "<code>dog # &lt;b&gt;heading&lt;/b&gt; ``` &lt;i&gt;</code>" in page
