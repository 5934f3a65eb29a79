"""Write the space of a preset as readable YAML, with the reason above each draft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from search.presets.rules import FEW_IMAGES, IMBALANCE, SMALL_SIDE, DataFacts, LocalMachine, Preset
from spaces.parameters.domains import Choice, LogUniform, Tree, Uniform, unparse
from spaces.reading.yaml_values import dump_yaml
from training.contract.specs import Backbone, Data

FEWEST_EPOCHS_WITH_CROPS = 10
# What a fine-tuning from the probe gains by on every set of photographs (docs/benchmarks.md, "Minutes").
HELD: dict[str, Tree] = {"label_smoothing": {"alpha": 0.1}, "head_dropout": {"rate": 0.3}}

EQUAL_CLASSES: Tree = {"name": "logit_adjusted", "tau": 1.0}  # as in balanced accuracy, each class counts as much


@dataclass(frozen=True)
class Draft:
    """What a preset has chosen, before a file is written. The reasons become comments."""

    preset: Preset
    spec: Data
    data: DataFacts
    machine: LocalMachine
    backbone: Backbone
    reason: str  # for the backbone
    side: int
    batch: int
    epochs: int
    levels: tuple[str, ...] = ("most", "full")  # of unfreeze, the deepest last
    has_batch_norm: bool = False
    most_side: int = 0  # where there is time
    probe_side: int = 0  # of the linear probe, where others have no time for as large images
    setup_seconds: float = 0.0  # of a trial, until its first epoch
    epoch_seconds: float = 0.0  # of the whole network; infinite: out of memory

    @property
    def is_small(self) -> bool:
        return self.data.side < SMALL_SIDE

    @property
    def keeps_statistics(self) -> bool:
        """Whether BatchNorm keeps the statistics of the pretraining: few images or epochs do not give better ones."""
        return self.has_batch_norm and (self.tunes_few or self.is_short)

    @property
    def is_pretrained(self) -> bool:
        return self.backbone.weights not in ("letters", "none")

    def describe_level(self, level: str) -> Tree:
        """Return a value of `unfreeze`. With `last`, BatchNorm is frozen in any case."""
        return {"level": level, **({"freeze_batch_norm": True} if self.keeps_statistics and level != "last" else {})}

    @property
    def is_short(self) -> bool:
        """Whether there are too few epochs for crops to pay (docs/benchmarks.md, "Minutes")."""
        return self.is_pretrained and self.epochs < FEWEST_EPOCHS_WITH_CROPS

    @property
    def tunes_few(self) -> bool:
        """Whether pretrained weights are fine-tuned on few images."""
        return self.is_pretrained and self.data.train_images < FEW_IMAGES

    @property
    def level(self) -> int:
        """How many techniques are searched; at most those of `good` where trainings are short, as images are few."""
        return min(self.preset.level, 1) if self.tunes_few else self.preset.level

    @property
    def is_imbalanced(self) -> bool:
        return self.data.most >= IMBALANCE * self.data.least


def write_space(draft: Draft, comments: Sequence[str]) -> str:
    """Return the text of a file that `sweep run` takes; `comments` begin it."""
    backbone, data, search = draft.backbone, draft.data, _describe_search(draft)
    techniques = {name: tree for name, (level, tree) in _list_techniques(draft).items() if level <= draft.level}
    recipe: dict[str, Tree] = {
        "data": describe_data(draft.spec),
        "backbone": {"source": backbone.source, "name": backbone.name, "weights": backbone.weights},
        "preprocessing": {"image_size": draft.side},
        "batch_size": draft.batch,
        "epochs": draft.epochs,
        "precision": {"mode": draft.machine.precision},
        "channels_last": {"enabled": True},
        **techniques,
    }
    of_recipe = {
        "backbone": f"{draft.reason}.",
        "preprocessing": f"The images have {data.side} pixels on the shorter side.",
        "epochs": f"An epoch has {max(1, data.train_images // draft.batch):,} steps.",
        "unfreeze": "How much of the model is trained: the head (last), also the later half (most), or everything (full).",
        "linear_probe": "Whether the head starts at the logistic regression on the frozen features.",
        "flip": "Set the probability to 0.0 where a mirrored image means something else.",
    }
    reasons = {("recipe", name): reason for name, reason in of_recipe.items() if name in recipe}
    first = "The first trials: this recipe with its learning rate, with a third of it, and with three times it."
    if "linear_probe" in techniques:
        first = "The first trial after the linear probe."
    reasons["search", "baseline"] = first
    if draft.probe_side > draft.side:
        reasons["search", "probe_size"] = "The linear probe alone has time for larger images."
    reasons["search", "metric"] = "Tells recipes apart as the accuracy does with twice as many images."
    if draft.is_imbalanced:
        reasons["search", "metric"] = f"One class has {data.most:,} images and another {data.least:,}."
    return dump_yaml({"format": 1, "recipe": unparse(recipe), "search": search}, "\n".join(comments), reasons)


def describe_data(spec: Data) -> dict[str, Tree]:
    """Return the images as a space names them, without defaults."""
    return {"name": spec.name, **spec.model_dump(exclude_defaults=True, exclude={"name"})}


def _list_techniques(draft: Draft) -> dict[str, tuple[int, Tree]]:
    adamw: Tree = {"name": "adamw", "lr": LogUniform(*_rates(draft)), "weight_decay": 0.05}
    rate = LogUniform(1e-3, 0.03 if draft.is_pretrained else 0.3)
    momentum: Tree = {"name": "momentum", "lr": rate, "weight_decay": LogUniform(1e-5, 1e-3)}
    crop: Tree = {"name": "resized", "min_area": Uniform(0.2, 0.9)}
    policy: Tree = {"policy": "trivial_augment"}
    if draft.is_small:
        crop = {"name": "padded", "padding": Uniform(0.05, 0.25)}
        policy = {"policy": "affine_colour", "probability": Uniform(0.2, 1.0)}
    unfreeze = tuple(map(draft.describe_level, draft.levels))
    has_many_steps = not (draft.is_short or draft.tunes_few)
    smoothing, dropout, loss = HELD["label_smoothing"], HELD["head_dropout"], EQUAL_CLASSES
    if draft.level:
        loss = Choice(({"name": "cross_entropy"}, {"name": "logit_adjusted", "tau": Uniform(0.3, 1.5)}))
        smoothing = Choice(({"alpha": 0.0}, {"alpha": Uniform(0.02, 0.2)}))
        dropout = Choice(({"rate": 0.0}, {"rate": Uniform(0.1, 0.5)}))
    techniques: dict[str, tuple[int, Tree]] = {
        "unfreeze": (0, Choice(unfreeze) if len(unfreeze) > 1 else unfreeze[0]),
        "linear_probe": (0, {"c": Choice(("off", "auto")) if draft.level and has_many_steps else "auto"}),
        "gradient_clipping": (0, {"value": 1.0}),  # without it, the rate that is best for one set spoils another
        "head_dropout": (0, dropout),
        "random_crop": (1 if draft.is_short else 0, Choice(({"name": "none"}, crop))),
        "flip": (0, {"probability": Choice((0.0, 0.5))}),
        "augmentation": (1, Choice(({"policy": "none"}, policy))),
        "mixup": (2 if draft.tunes_few else 1, Choice(({"alpha": 0.0}, {"alpha": LogUniform(0.1, 1.0)}))),
        "cutmix": (2, Choice(({"alpha": 0.0}, {"alpha": LogUniform(0.1, 1.0)}))),
        "random_erasing": (2, Choice(({"probability": 0.0}, {"probability": Uniform(0.1, 0.5)}))),
        "label_smoothing": (0 if draft.is_pretrained else 1, smoothing),
        "loss": (0, loss),
        "layer_decay": (2, Choice(({"factor": 1.0}, {"factor": Uniform(0.6, 0.95)}))),
        "schedule": (0, {"name": "cosine", "warmup_epochs": 1 if draft.epochs > 2 else 0.2 * draft.epochs}),
        "optimizer": (0, adamw if draft.level < 2 else Choice((adamw, momentum))),
        "averaging": (2, Choice(({"name": "none"}, {"name": "ema", "half_life": LogUniform(0.01, 0.2)}))),
    }
    if not draft.is_imbalanced:
        del techniques["loss"]
    if not draft.is_pretrained:
        for name in ("linear_probe", "gradient_clipping", "head_dropout"):
            del techniques[name]
    if draft.levels == ("last",):
        del techniques["layer_decay"]  # nothing below the head trains
    return techniques


def _describe_search(draft: Draft) -> dict[str, Tree]:
    low, high = _rates(draft)
    least, deepest = min(2 if draft.is_pretrained else 1, draft.epochs), draft.describe_level(draft.levels[-1])
    crop: Tree = {"name": "padded"} if draft.is_small else {"name": "resized", "min_area": 0.5}
    return {
        "trials": draft.preset.trials[1],
        "metric": "val_soft_balanced_accuracy" if draft.is_imbalanced else "val_soft_accuracy",
        **({"score": "last"} if draft.is_pretrained else {}),  # the best of few epochs is luck, and there are few
        **({"probe_size": draft.probe_side} if draft.probe_side > draft.side else {}),
        "sampler": "tpe",
        # After the warm-up alone, a start at the probe is disturbed and has not settled yet.
        "scheduler": {"name": "asha", "min_epochs": least, "reduction_factor": 2},
        "baseline": {
            **({"unfreeze": deepest} if deepest != {"level": "full"} else {}),
            **({"linear_probe": {"c": "auto"}, **HELD} if draft.is_pretrained else {}),
            **({} if draft.is_short else {"random_crop": crop}),
            **({"loss": EQUAL_CLASSES} if draft.is_imbalanced else {}),
            "flip": {"probability": 0.5},
            "optimizer": {"name": "adamw", "lr": float(f"{(low * high) ** 0.5:.2g}"), "weight_decay": 0.05},
        },
    }


def _rates(draft: Draft) -> tuple[float, float]:
    """Return the learning rates of AdamW: pretrained weights need small ones, above all without BatchNorm."""
    if not draft.is_pretrained:
        return 3e-4, 3e-2
    return (3e-4, 1.2e-3) if draft.has_batch_norm else (3e-5, 1e-3)  # 1.6e-3 undoes the probe
