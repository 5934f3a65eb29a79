"""Write the space of a preset as readable YAML, with the reason beside each choice."""

from __future__ import annotations

import json
from dataclasses import dataclass
from textwrap import wrap

from search.presets.facts import DataFacts, MachineFacts
from search.presets.rules import IMBALANCE, SMALL_SIDE, Preset
from training.contract.specs import Backbone, Data

WIDTH = 100  # characters of a comment


@dataclass(frozen=True)
class Choice:
    """What a preset has chosen, before a file is written. The reasons become comments."""

    preset: Preset
    spec: Data
    data: DataFacts
    machine: MachineFacts
    backbone: Backbone
    reason: str  # for the backbone
    side: int
    batch: int
    epochs: int
    trials: int

    @property
    def is_small(self) -> bool:
        return self.data.side < SMALL_SIDE

    @property
    def is_imbalanced(self) -> bool:
        return self.data.most >= IMBALANCE * self.data.least


def write_space(choice: Choice, comments: list[str]) -> str:
    """Return the text of a file that `sweep run` takes; `comments` begin it."""
    techniques = [text for level, text in _list_techniques(choice) if level <= choice.preset.level]
    lines = [
        *(line for comment in comments for line in _comment(comment)),
        "format: 1",
        "",
        "recipe:",
        f"  data: {_write_data(choice.spec)}",
        *(f"  {line}" for line in _comment(f"{choice.reason}.")),
        f"  backbone: {{source: {choice.backbone.source}, name: {choice.backbone.name}, "
        f"weights: {json.dumps(choice.backbone.weights)}}}",
        f"  preprocessing: {{image_size: {choice.side}}}   # the images have {choice.data.side} pixels on the shorter side",
        f"  batch_size: {choice.batch}",
        f"  epochs: {choice.epochs}   # of {max(1, choice.data.train_images // choice.batch):,} steps",
        f"  precision: {{mode: {choice.machine.precision}}}",
        "",
        *techniques,
        "",
        *_write_search(choice),
    ]
    return "\n".join(lines) + "\n"


def _comment(sentence: str) -> list[str]:
    return wrap(sentence, WIDTH, initial_indent="# ", subsequent_indent="#   ", break_long_words=False)


def _write_data(spec: Data) -> str:
    values = spec.model_dump(exclude_defaults=True, exclude={"name"})
    fields = [
        f"name: {spec.name}",
        *(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()),
    ]
    return f"{{{', '.join(fields)}}}"


def _list_techniques(choice: Choice) -> list[tuple[int, str]]:
    """The lines of each technique, with the level of the first preset that has them."""
    levels = "[most, full]" if choice.backbone.weights == "letters" else "[last, most, full]"
    crop = (
        "{name: padded, padding: {uniform: [0.05, 0.25]}}"
        if choice.is_small
        else "{name: resized, min_area: {uniform: [0.2, 0.9]}}"
    )
    policy = "small_images, probability: {uniform: [0.2, 1.0]}" if choice.is_small else "trivial_augment"
    low, high = _rates(choice)
    adamw = f"{{name: adamw, lr: {{log_uniform: [{low:g}, {high:g}]}}, weight_decay: 0.05}}"
    momentum = "{name: momentum, lr: {log_uniform: [1e-3, 0.3]}, weight_decay: {log_uniform: [1e-5, 1e-3]}}"
    return [
        (0, f"  # How much of the model is trained: the head, also the later half, or all of it.\n"
            f"  unfreeze: {{level: {{choice: {levels}}}}}"),
        (0, f"  random_crop:\n    choice:\n      - {{name: none}}\n      - {crop}"),
        (0, "  flip: {probability: {choice: [0.0, 0.5]}}   # 0.0 where a mirrored image means something else"),
        (1, f"  augmentation:\n    choice:\n      - {{policy: none}}\n      - {{policy: {policy}}}"),
        (1, _on_or_off("mixup", "alpha", "{log_uniform: [0.1, 1.0]}")),
        (2, _on_or_off("cutmix", "alpha", "{log_uniform: [0.1, 1.0]}")),
        (2, _on_or_off("random_erasing", "probability", "{uniform: [0.1, 0.5]}")),
        (1, _on_or_off("label_smoothing", "alpha", "{uniform: [0.02, 0.2]}")),
        *([(1, _BALANCE)] if choice.is_imbalanced else []),
        (2, _on_or_off("layer_decay", "factor", "{uniform: [0.6, 0.95]}", off="1.0")),
        (0, "  schedule: {name: cosine, warmup_epochs: 1}"),
        (0, f"  optimizer: {adamw}" if choice.preset.level < 2
            else f"  optimizer:\n    choice:\n      - {adamw}\n      - {momentum}"),
        (2, "  averaging:\n    choice:\n      - {name: none}\n      - {name: ema, half_life: {log_uniform: [0.01, 0.2]}}"),
    ]  # fmt: skip


_BALANCE = "  class_balance:\n    choice:\n      - {name: none}\n      - {name: weights, power: {uniform: [0.2, 1.0]}}"


def _on_or_off(name: str, field: str, domain: str, off: str = "0.0") -> str:
    return f"  {name}:\n    choice:\n      - {{{field}: {off}}}   # off\n      - {{{field}: {domain}}}"


def _rates(choice: Choice) -> tuple[float, float]:
    """The learning rates of AdamW: pretrained weights need small ones."""
    return (3e-4, 3e-2) if choice.backbone.weights in ("letters", "none") else (3e-5, 3e-3)


def _write_search(choice: Choice) -> list[str]:
    crop = "{name: padded}" if choice.is_small else "{name: resized, min_area: 0.5}"
    low, high = _rates(choice)
    metric = "val_balanced_accuracy" if choice.is_imbalanced else "val_accuracy"
    why = (
        f"   # one class has {choice.data.most:,} images and another {choice.data.least:,}"
        if choice.is_imbalanced
        else ""
    )
    return [
        "search:",
        f"  trials: {choice.trials}",
        f"  metric: {metric}{why}",
        "  sampler: tpe",
        "  scheduler: {name: asha, min_epochs: 1, reduction_factor: 2}",
        "  # The first trials: this recipe at its learning rate, at a third of it, and at three times of it.",
        "  baseline:",
        f"    random_crop: {crop}",
        "    flip: {probability: 0.5}",
        f"    optimizer: {{name: adamw, lr: {(low * high) ** 0.5:.2g}, weight_decay: 0.05}}",
    ]
