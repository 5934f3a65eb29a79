"""The export of a timm model is a model folder of the Hugging Face hub."""

import json

import pytest
import torch

from analysis.export.bundle import read_export


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
