"""A model card: the model, its data, its scores, and how to load it (Mitchell et al. 2019)."""

from __future__ import annotations

from analysis.export.summary import Summary
from spaces.load import dump_recipe
from spaces.parameters.domains import format_value
from training.recipe import Recipe
from training.score_metrics import MAXIMISED

RELEASED = (
    "These weights were trained on the validation images too, for as many epochs as the recipe has. No images are left to "
    "score them: every figure below is for the same recipe and seed, trained without the validation images."
)


SOUP = (
    "The weights are the mean of those of the trials {trials}, each at its best epoch, with BatchNorm's statistics measured "
    "anew on the training images (a greedy soup, Wortsman et al. 2022). The recipe below is that of the first of them; "
    "training it again does not give these weights."
)


def describe(recipe: Recipe, summary: Summary, loading: str | None = None) -> str:
    """The card, in Markdown.

    Args:
        recipe: The resolved recipe.
        summary: The summary of the export.
        loading: Code that loads the model in one line, which some exports have besides the code for all.
    """
    parts = [
        f"# {summary['backbone']['name']} for {len(summary['classes'])} classes",
        _describe_model(summary),
        *([SOUP.format(trials=", ".join(summary["soup"]))] if "soup" in summary else []),
        "## Data",
        f"`{format_value(recipe.data.model_dump())}`, split by its own seed into training, validation and test.",
        "## Scores",
        *_describe_scores(summary),
        "## Load it",
        "Run this in the folder of this card. It needs timm or torchvision, torch, safetensors and Pillow, and no other part "
        "of the project that trained the model:",
        f"```python\n{loading_code(summary)}```",
        "The transform expects an upright image without transparency; `sweep predict` also turns photos by their EXIF entry.",
        *(
            [
                "## Load it with timm alone",
                "The folder's `config.json` has the architecture and the preprocessing:",
                loading,
            ]
            if loading
            else []
        ),
        "## Classes",
        ", ".join(f"{number}: {name}" for number, name in enumerate(summary["classes"])),
        "## Recipe",
        f"```yaml\n{dump_recipe(recipe)}```",
    ]
    return "\n\n".join(parts) + "\n"


def loading_code(summary: Summary) -> str:
    """Code that loads the model and predicts one image, with timm, torchvision or the user's own file."""
    backbone, side = summary["backbone"], summary["input_size"][1]
    arguments = "".join(f", {name}={value!r}" for name, value in backbone["arguments"].items())
    mean, std = tuple(summary["mean"]), tuple(summary["std"])
    prepare = ""
    if backbone["source"] == "timm":
        imports = "import timm\n"
        model = f'timm.create_model("{backbone["name"]}", num_classes={len(summary["classes"])}{arguments}).eval()'
        transform = (
            f"timm.data.create_transform((3, {side}, {side}), crop_pct={summary['crop']}, "
            f'interpolation="{summary["interpolation"]}", mean={mean}, std={std})'
        )
    else:
        imports = "from torchvision import models, transforms as T\n"
        if backbone["source"] == "own":
            imports = (
                "from torchvision import transforms as T\nfrom training.contract.specs import OWN_BACKBONES\n"
                "from training.own import load\n"
            )
            prepare = 'load(["FILE.py"])  # the file that was given with --with\n'
            model = f'OWN_BACKBONES["{backbone["name"]}"][0].build({len(summary["classes"])}, {side}).eval()'
        else:
            model = f'models.get_model("{backbone["name"]}", num_classes={len(summary["classes"])}{arguments}).eval()'
        transform = (
            f'T.Compose([T.Resize({int(side / summary["crop"])}, T.InterpolationMode("{summary["interpolation"]}")), '
            f"T.CenterCrop({side}), T.ToTensor(), T.Normalize({mean}, {std})])"
        )
    if "members" in summary:
        imports = f"import torch\n{imports}"
    return (
        f"{imports}from PIL import Image\nfrom safetensors.torch import load_file\n\n"
        f"{prepare}{_code_of_model(model, summary)}"
        f"transform = {transform}\n"
        'probabilities = model(transform(Image.open("image.png").convert("RGB"))[None]).softmax(1)[0]\n'
        f"print({summary['classes']!r}[int(probabilities.argmax())], float(probabilities.max()))\n"
    )


def _code_of_model(model: str, summary: Summary) -> str:
    """Code that builds the model from the expression `model`, and loads its weights."""
    flips = summary.get("flip_average")
    if "members" not in summary:
        average = "plain = model\nmodel = lambda images: (plain(images) + plain(images.flip(3))) / 2\n"
        return f'model = {model}\nmodel.load_state_dict(load_file("model.safetensors"))\n{average if flips else ""}'
    logits = "(member(images) + member(images.flip(3))).div(2)" if flips else "member(images)"
    return (
        f"members = torch.nn.ModuleList([{model} for _ in range({summary['members']})])\n"
        'members.load_state_dict(load_file("model.safetensors"))\n'
        f"model = lambda images: torch.stack([{logits}.softmax(1) for member in members]).mean(0).log()\n"
    )


def _describe_model(summary: Summary) -> str:
    backbone, side = summary["backbone"], summary["input_size"][1]
    trials = f"{len(summary['soup'])} trials" if "soup" in summary else f"trial {summary['trial']}"
    origin = (
        f"{trials} of the sweep {summary['sweep']}" if summary["sweep"] else "a recipe that was trained outside a sweep"
    )
    epoch = "" if "soup" in summary else f" of epoch {summary['best_epoch']}"
    average = ", the mean over the image and its mirror image" if summary.get("flip_average") else ""
    count = summary.get("members", 1)
    ensemble = (
        f" It is an ensemble: the mean of the probabilities of {count} models from one training, which together take "
    )
    ensemble = f"{ensemble}{count} times the memory and the time of one." if count > 1 else ""
    return (
        f"An image classifier: {backbone['name']} of {backbone['source']}, weights{epoch} of "
        f"{origin}. It takes RGB images of {side}×{side}: resized with {summary['interpolation']} interpolation until the "
        f"shorter side is {int(side / summary['crop'])}, cropped at the centre, scaled to [0, 1], normalised with mean "
        f"{summary['mean']} and deviation {summary['std']}. Its output is one logit for each class{average}.{ensemble}"
    )


def _describe_scores(summary: Summary) -> list[str]:
    from analysis.effects.intervals import NORMAL_95  # with numpy, which a wrong name must not wait for

    half = NORMAL_95 * summary["standard_error"]
    low, high = (_format(summary["metric"], summary["score"] + sign * half) for sign in (-1, 1))
    metrics = ", ".join(f"{name} {value:.4f}" for name, value in summary["metrics"].items() if name.startswith("val_"))
    lines = [RELEASED] if summary["trained_on"] != "train" else []
    lines += [
        f"Validation {summary['metric']} {_format(summary['metric'], summary['score'])}, 95 % interval {low} to {high} over "
        f"images. {'Trials' if 'soup' in summary else 'Recipe and epoch'} were chosen by this score, so it is too optimistic.",
        f"All validation metrics {'of the mean' if 'soup' in summary else 'at that epoch'}: {metrics}.",
    ]
    if test := summary["test"]:
        accuracy, before, after = test["accuracy"], test["calibration"]["before"], test["calibration"]["after"]
        lines.append(
            f"Test accuracy {accuracy['mean']:.1%}, 95 % interval {accuracy['low']:.1%} to {accuracy['high']:.1%}, on "
            f"{test['images']} images that influenced no choice."
        )
        lines.append(
            f"Calibration on the test part: ECE {before['ece']:.3f}, Brier {before['brier']:.3f}, NLL {before['nll']:.3f}. "
            "Logits divided "
            f"by {test['temperature']:.3f}, the temperature fitted on validation: {after['ece']:.3f}, {after['brier']:.3f}, "
            f"{after['nll']:.3f}."
        )
    else:
        lines.append("It was not scored on the test part: `sweep confirm` scores it, once.")
    if onnx := summary.get("onnx"):
        lines.append(
            f"`{onnx['file']}` gives the same logits to within {onnx['largest_difference']:.1e} on {onnx['images']} images."
        )
    if int8 := summary.get("int8"):
        lines.append(
            f"`{int8['file']}` holds 8-bit weights and activations, {int8['megabytes']:.1f} MB instead of "
            f"{int8['megabytes_float32']:.1f}: validation accuracy {int8['val_accuracy']:.1%} where float32 has "
            f"{int8['val_accuracy_float32']:.1%}."
        )
    return lines


def _format(metric: str, value: float) -> str:
    return f"{value:.1%}" if metric in MAXIMISED else f"{value:.4f}"
