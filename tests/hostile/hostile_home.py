"""The working folder of the wrong commands: one valid file of each kind, and damaged ones beside it."""

from __future__ import annotations

import io
import json
import os
import pickle
import sqlite3
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image

from search.tracking.mlflow_store import open_store

SPACE = """format: 1
recipe:
  data: {name: digits, train_size: 64}
  backbone: {name: test_resnet, weights: none}
  epochs: 2
"""
NUMBERS = {"cat": range(10), "dog": range(10, 20)}  # numbers of the pictures in photos
DOMAIN = "  batch_size: {choice: [16, 32]}\nsearch: {trials: 3}\n"
LAUGHS = "a0: &a0 [ha, ha]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 31))


class Code:
    """Makes a file when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("unpickled"),)


def build_home(home: Path) -> None:
    """Fill an empty folder with the files of all commands."""
    _make_images(home)
    _make_tables(home)
    _make_files(home)
    _make_packed(home)
    _make_sweeps(home / "sweeps")
    _make_damaged_sweeps(home / "damaged")
    build_exports(home / "exports")
    _make_stores(home)


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def _images(folder: Path, count: int, first: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + count):
        Image.new("RGB", (16, 16), (9 * number % 256, 90, 200)).save(folder / f"{number}.png")


def _make_images(home: Path) -> None:
    for number, name in enumerate(("cat", "dog")):
        _images(home / "photos" / name, 10, 10 * number)
        _images(home / "one_class/cat", 5)
        _images(home / "few" / name, 2)
        _images(home / "strange_val/train" / name, 5)
        _images(home / "empty_val/train" / name, 5)
        _images(home / "broken" / name, 10, 10 * number)
    write(home / "broken/cat/3.png", b"\x89PNG\r\n\x1a\n" + bytes(40))
    write(home / "broken/dog/11.png", "no image at all")
    _images(home / "thin/cat", 10)
    _images(home / "thin/dog", 10, 10)
    Image.new("L", (1, 5_000_000)).save(home / "thin/cat/thin.png")
    _images(home / "strange_val/val/bird", 2)
    (home / "empty_val/val/cat").mkdir(parents=True)
    _images(home / "flat", 3)
    _images(home / "empty_class/cat", 5)
    (home / "empty_class/dog").mkdir()
    (home / "empty").mkdir()
    write(home / "no_images/cat/notes.txt", "no image")
    write(home / "no_images/dog/notes.txt", "no image")
    Image.new("RGB", (16, 16)).save(home / "photo.png")
    write(home / "junk/photo.png", "no image")
    _images(home / "beside/cat", 5)
    _images(home / "beside/dog", 5)
    _images(home / "beside", 1)
    for part, name in (("Train", "cat"), ("Train", "dog"), ("Val", "bird")):
        _images(home / "capital_parts" / part / name, 5)
    for part in ("seg_train", "seg_test"):
        _images(home / "named_parts" / part / "cat", 5)
    os.symlink("nowhere", home / "dangling")
    os.mkfifo(home / "pipe")
    os.mkfifo(home / "pipe.yaml")
    os.mkfifo(home / "pipe.csv")


def _make_tables(home: Path) -> None:
    rows = [f"photos/{name}/{number}.png,{name}" for name in ("cat", "dog") for number in NUMBERS[name]]
    tables = {
        "no_header": "\n".join(rows),
        "no_label": "path\nphotos/cat/1.png\n",
        "capitals": "Path,Label\n" + "\n".join(rows),
        "semicolons": "path;label\n" + "\n".join(row.replace(",", ";") for row in rows),
        "only_header": "path,label\n",
        "no_file": "path,label\n" + "\n".join([*rows, "photos/cat/nothing.png,cat"]),
        "no_path": "path,label\n" + "\n".join([*rows, ",cat"]),
        "blank_label": "path,label\n" + "\n".join([*rows, "photo.png,"]),
        "twice": "path,label\n" + "\n".join([*rows, rows[0]]),
        "one_label": "path,label\n" + "\n".join(row for row in rows if row.endswith("cat")),
        "strange_split": "path,label,split\n" + "\n".join(f"{row},trian" for row in rows),
        "half_split": "path,label,split\n" + "\n".join(f"{row},{'train' if i else ''}" for i, row in enumerate(rows)),
        "only_train": "path,label,split\n" + "\n".join(f"{row},train" for row in rows),
        "group_in_two": "path,label,split,group\n"
        + "\n".join(f"{row},{part},g" for row, part in zip(rows, ("train", "val") * 10, strict=True)),
        "folder_as_image": "path,label\n" + "\n".join([*rows, "photos/cat,cat"]),
        "long_label": "path,label\n" + "\n".join([*rows, f"photo.png,{'x' * 5000}"]),
        "val_only_label": "path,label,split\n" + "\n".join(
            f"{row},{('train', 'val', 'test')[i % 3]}" for i, row in enumerate(rows)
        ) + "\nphoto.png,bird,val\n",
    }  # fmt: skip
    for name, text in tables.items():
        write(home / f"{name}.csv", text)
    write(home / "empty.csv", "")
    write(home / "latin.csv", "path,label\nphotos/cat/1.png,caf\xe9".encode("latin-1"))
    write(home / "nul.csv", b"path,label\nphotos/cat/1.png,c\0at\n")
    write(home / "binary.csv", bytes(range(256)))
    (home / "folder.csv").mkdir()


def _make_files(home: Path) -> None:
    """Write recipes, spaces, weights and augmentations."""
    bad = home / "bad"
    write(home / "recipe.yaml", SPACE)
    write(home / "space.yaml", SPACE + DOMAIN)
    write(home / "mine/recipe.yaml", SPACE)
    files: dict[str, str | bytes] = {
        "empty.yaml": "",
        "comment.yaml": "# nothing but a comment\n",
        "word.yaml": "just words\n",
        "list.yaml": "- format: 1\n- recipe: {}\n",
        "number.yaml": "17\n",
        "tab.yaml": "format: 1\nrecipe:\n\tepochs: 3\n",
        "open.yaml": "format: 1\nrecipe: {epochs: [1\n",
        "quote.yaml": 'format: 1\nrecipe: {backbone: {name: "resnet18}}\n',
        "two.yaml": "format: 1\nrecipe: {}\n---\nformat: 1\nrecipe: {}\n",
        "twice.yaml": "format: 1\nrecipe:\n  epochs: 3\n  epochs: 4\n",
        "section_twice.yaml": "format: 1\nrecipe: {epochs: 3}\nrecipe: {epochs: 4}\n",
        "alias.yaml": "format: 1\nrecipe: {epochs: *three}\n",
        "inside_itself.yaml": "format: 1\nrecipe: &r {mixup: *r}\n",
        "merge.yaml": "base: &b {epochs: 3}\nformat: 1\nrecipe: {<<: *b}\n",
        "merge_inside.yaml": "format: 1\nrecipe: {mixup: &m {alpha: 0.1}, cutmix: {<<: *m}}\n",
        "key.yaml": "format: 1\n? [1, 2]\n: 3\n",
        "python.yaml": "format: 1\nrecipe: !!python/object/apply:os.system [echo hello]\n",
        "tag.yaml": "format: 1\nrecipe: {epochs: !mine 3}\n",
        "binary.yaml": bytes(range(256)),
        "nul.yaml": b"format: 1\nrecipe: {epochs: 3\0}\n",
        "latin.yaml": "format: 1\n# caf\xe9\nrecipe: {}\n".encode("latin-1"),
        "json.yaml": '{"format": 1, "recipe": {"epochs": 3,}, "serach": {}}\n',
        "no_format.yaml": "recipe: {epochs: 3}\n",
        "format_0.yaml": "format: 0\nrecipe: {}\n",
        "format_2.yaml": "format: 2\nrecipe: {}\n",
        "format_text.yaml": 'format: "1"\nrecipe: {}\n',
        "format_float.yaml": "format: 1.0\nrecipe: {}\n",
        "format_true.yaml": "format: true\nrecipe: {}\n",
        "format_null.yaml": "format:\nrecipe: {}\n",
        "no_recipe.yaml": "format: 1\n",
        "recipe_list.yaml": "format: 1\nrecipe: [epochs, 3]\n",
        "recipe_text.yaml": "format: 1\nrecipe: resnet18\n",
        "recipe_domain.yaml": "format: 1\nrecipe: {choice: [{epochs: 3}, {epochs: 4}]}\n",
        "search_list.yaml": "format: 1\nrecipe: {}\nsearch: [16]\n",
        "search_number.yaml": "format: 1\nrecipe: {}\nsearch: 16\n",
        "stranger.yaml": "format: 1\nrecipes: {epochs: 3}\n",
        "flat.yaml": "format: 1\nepochs: 3\n",
        "deeper.yaml": "format: 1\nrecipe: " + "{a: " * 3000 + "1" + "}" * 3000 + "\n",
        "deep_list.yaml": "format: 1\nrecipe: " + "[" * 3000 + "]" * 3000 + "\n",
        "laughs.yaml": LAUGHS,
        "large.yaml": SPACE + "#" * 17_000_000,
        "deep.yaml": "format: 1\nrecipe: {mixup: " + "{alpha: " * 60 + "1" + "}" * 61 + "\n",
        "domain.yaml": SPACE + "  label_smoothing: {alpha: {uniform: [0.0, 0.3]}}\n",
        "date.yaml": "format: 1\nrecipe: {epochs: 2026-01-01}\n",
        "yes.yaml": "format: 1\nrecipe: {cudnn_benchmark: {enabled: yes}}\n",
        "octal.yaml": "format: 1\nrecipe: {epochs: 0o}\n",
        "nested_domain.yaml": "format: 1\nrecipe:\n  epochs: {choice: [{uniform: [1, 2]}, 3]}\n",
        "domain_in_data.yaml": "format: 1\nrecipe:\n  data: {name: digits, train_size: {choice: [{int_uniform: [8, 9]}, 9]}}\n",
        "domain_in_seed.yaml": "format: 1\nrecipe:\n  seed: {choice: [1, {int_uniform: [2, 3]}]}\n",
        "mapping_in_list.yaml": "format: 1\nrecipe: {preprocessing: {mean: [{uniform: [0, 1]}, 0.5, 0.5]}}\n",
    }  # fmt: skip
    for name, text in files.items():
        write(bad / name, text)
    (bad / "folder.yaml").mkdir()
    os.symlink("nowhere.yaml", bad / "dangling.yaml")
    os.symlink("circle.yaml", bad / "circle.yaml")
    write(bad / "weights.safetensors", "no weights")
    write(bad / "weights.pt", "no weights")
    write(bad / "code.pt", pickle.dumps(Code()))
    write(bad / "augmentation.json", "{")
    write(bad / "augmentation_large.json", "[" + "0," * 2**18 + "0]")
    write(bad / "augmentation_deep.json", "[" * 3000 + "]" * 3000)
    write(bad / "augmentation_laughs.yaml", LAUGHS)
    write(bad / "augmentation_list.json", "[1, 2]")
    write(bad / "augmentation_stranger.json", '{"transform": {"__class_fullname__": "os.system"}}')
    write(home / "notes.txt", "nothing")
    write(home / "page.html", "")


def sweep_events(name: str, space: str, trials: int = 3, completed: bool = True) -> list[dict[str, Any]]:
    """Return the ledger of a sweep whose trials all ran to their end."""
    settings = {"tracking_uri": "sqlite:///mlflow.db", "experiment": "technique-search"}
    events: list[dict[str, Any]] = [
        {"format": 1},
        {"event": "sweep", "name": name, "id": "1", "space": space, "settings": settings, "dataset": None},
        {"event": "driver", "pid": 1, "host": "here", "threads": 1, "slots": 1, "gpus": 0, "seconds": {}},
    ]
    recipe = {
        "data": {"name": "digits", "train_size": 64},
        "backbone": {"name": "test_resnet", "weights": "none"},
        "epochs": 2,
    }
    for number in range(trials if completed else 1):
        own = {**recipe, "optimizer": {"name": "momentum", "lr": 0.01 * (number + 1)}}
        events.append({"event": "start", "trial": number, "recipe": own, "params": None, "origin": "baseline"})
        for epoch in (1, 2):
            score = 0.5 + 0.1 * number + 0.1 * epoch
            metrics = {"val_accuracy": score, "val_loss": 1 - score, "train_seconds": 0.1 * epoch}
            report = {"epoch": epoch, "metrics": metrics, "score": score, "standard_error": 0.01, "best_epoch": epoch}
            events.append({"event": "report", "trial": number, **report})
        if completed:
            events.append({"event": "end", "trial": number, "state": "completed", "reason": ""})
    if completed:
        events.append({"event": "close", "state": "completed"})
        events.append({"event": "runs", "ids": {}, "undelivered": 0})
    return [{"time": 1.7e9 + number, **event} for number, event in enumerate(events)]


def make_sweep(storage: Path, name: str, ledger: str | bytes | None = None, **options: Any) -> Path:
    """Create a sweep's folder; `ledger` replaces the one with finished trials."""
    from spaces.load import load_space

    write(storage / "draft.yaml", SPACE + DOMAIN)
    space = load_space(storage / "draft.yaml").to_yaml()
    (storage / "draft.yaml").unlink()
    folder = storage / name
    lines = "".join(json.dumps(event) + "\n" for event in sweep_events(name, space, **options))
    write(folder / "space.yaml", space)
    write(folder / "ledger.jsonl", lines if ledger is None else ledger)
    write(folder / "lock", "")  # every driver leaves it
    return folder


def _make_sweeps(storage: Path) -> None:
    make_sweep(storage, "done-1")
    make_sweep(storage, "cut-1", completed=False)
    junk = make_sweep(storage, "junk-weights-1")
    write(junk / "trials/0002/best.ckpt", "no weights")
    write(make_sweep(storage, "code-weights-1") / "trials/0002/best.ckpt", pickle.dumps(Code()))
    pipe = make_sweep(storage, "pipe-weights-1") / "trials/0002/best.ckpt"
    pipe.parent.mkdir(parents=True)
    os.mkfifo(pipe)
    write(storage / "not-a-sweep/notes.txt", "nothing")
    _make_confirmation(storage)


def _make_confirmation(storage: Path) -> None:
    """Create a sweep that was confirmed on two seeds."""
    make_sweep(storage, "confirmed-1")
    folder = make_sweep(storage, "confirmed-1-confirm")
    events = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    recipe = next(event["recipe"] for event in events if event.get("event") == "start")
    trials = [{"label": "baseline", "recipe": recipe, "origin": "baseline"} for _ in range(3)]
    listing = {"kind": "confirm", "of": "confirmed-1", "seeds": [1, 2, 3], "notes": [], "trials": trials}
    events.insert(2, {"time": 1.7e9, "event": "list", **listing})
    write(folder / "ledger.jsonl", "".join(json.dumps(event) + "\n" for event in events))


def _make_damaged_sweeps(storage: Path) -> None:
    whole = (make_sweep(storage, "draft") / "ledger.jsonl").read_text().splitlines(keepends=True)
    ledgers: dict[str, str | bytes] = {
        "binary": bytes(range(256)) + b"\n",
        "list": "[]\n",
        "number": "7\n",
        "null": "null\n",
        "empty": "",
        "torn": whole[0][:5],
        "header-only": whole[0],
        "newer": '{"time":0,"format":2}\n' + "".join(whole[1:]),
        "text-format": '{"time":0,"format":"1"}\n' + "".join(whole[1:]),
        "no-header": "".join(whole[1:]),
        "no-sweep": "".join([whole[0], *whole[2:]]),
        "no-time": '{"format":1}\n' + whole[1],
    }
    for name, text in ledgers.items():
        make_sweep(storage, name, text)
    ledger = make_sweep(storage, "folder-ledger") / "ledger.jsonl"
    ledger.unlink()
    ledger.mkdir()
    for child in (storage / "draft").iterdir():
        child.unlink()
    (storage / "draft").rmdir()


def build_exports(exports: Path) -> None:
    """Create one complete export of a tiny model, and others with one broken part each."""
    import torch
    from safetensors.torch import save_file

    from spaces.load import dump_recipe
    from training.model.build import build_model
    from training.recipe import read_recipe

    values = {
        "data": {"name": "digits"},
        "backbone": {"name": "test_resnet", "weights": "none"},
        "preprocessing": {
            "image_size": 32, "crop": 1.0, "interpolation": "bilinear", "mean": [0.5] * 3, "std": [0.5] * 3
        },
    }  # fmt: skip
    recipe = read_recipe(values)
    state = build_model(recipe.backbone, 2, 32).state_dict()
    good = exports / "good"
    good.mkdir(parents=True)
    save_file({name: value.contiguous() for name, value in state.items()}, good / "model.safetensors")
    write(good / "recipe.yaml", dump_recipe(recipe))
    write(good / "summary.json", json.dumps({"format": 1, "classes": ["cat", "dog"], "threads": 1}))
    whole = {path.name: path.read_bytes() for path in good.iterdir()}
    few = dict(list(state.items())[:3])
    save_file({name: torch.zeros_like(value) for name, value in few.items()}, exports / "few")
    changes: dict[str, dict[str, str | bytes | None]] = {
        "no-weights": {"model.safetensors": None},
        "no-recipe": {"recipe.yaml": None},
        "no-summary": {"summary.json": None},
        "junk-weights": {"model.safetensors": "no weights"},
        "empty-weights": {"model.safetensors": ""},
        "cut-weights": {"model.safetensors": whole["model.safetensors"][:2000]},
        "huge-header": {"model.safetensors": b"\xff" * 8 + b"{}"},
        "other-weights": {"model.safetensors": (exports / "few").read_bytes()},
        "junk-summary": {"summary.json": "{"},
        "list-summary": {"summary.json": "[]"},
        "deep-summary": {"summary.json": "[" * 100_000 + "]" * 100_000},
        "half-summary": {"summary.json": '{"format": 1, "classes": ["c\\ud800at", "dog"], "threads": 1}'},
        "few-facts": {"summary.json": '{"format": 1, "classes": ["cat", "dog"]}'},
        "junk-onnx": {"model.onnx": "no model"},
        **{f"onnx-{kind}": {"model.onnx": content} for kind, content in _list_onnx()},
        "binary-summary": {"summary.json": bytes(range(256))},
        "newer-summary": {"summary.json": '{"format": 2, "classes": ["cat", "dog"]}'},
        "no-classes": {"summary.json": '{"format": 1}'},
        "text-classes": {"summary.json": '{"format": 1, "classes": "cats"}'},
        "number-classes": {"summary.json": '{"format": 1, "classes": 2}'},
        "no-class": {"summary.json": '{"format": 1, "classes": []}'},
        "three-classes": {"summary.json": '{"format": 1, "classes": ["cat", "dog", "bird"]}'},
        "junk-recipe": {"recipe.yaml": "format: ["},
        "newer-recipe": {"recipe.yaml": "format: 2\nrecipe: {}\n"},
        "domain-recipe": {"recipe.yaml": SPACE + DOMAIN},
        "auto-recipe": {"recipe.yaml": SPACE},
        "other-backbone": {"recipe.yaml": whole["recipe.yaml"].replace(b"test_resnet", b"test_vit")},
        "strange-backbone": {"recipe.yaml": whole["recipe.yaml"].replace(b"test_resnet", b"resnet19")},
    }
    for name, changed in changes.items():
        for file, content in {**whole, **changed}.items():
            if content is not None:
                write(exports / name / file, content)
    (exports / "few").unlink()


def _list_onnx() -> Iterator[tuple[str, bytes]]:
    """Yield valid ONNX files that are not those of an export, each with its difference."""
    from onnx import TensorProto, helper

    images, kind = ("n", 3, 32, 32), TensorProto.FLOAT
    changes = {"name": ("other", images, kind), "shape": ("images", (1, 5), kind), "output": ("images", images, kind)}
    for what, given in {**changes, "type": ("images", images, TensorProto.INT64)}.items():
        ends = [
            helper.make_tensor_value_info(*each) for each in ((given[0], given[2], given[1]), ("y", given[2], None))
        ]
        graph = helper.make_graph([helper.make_node("Identity", [given[0]], ["y"])], "g", ends[:1], ends[1:])
        versions = {"opset_imports": [helper.make_opsetid("", 17)], "ir_version": 8}
        yield what, helper.make_model(graph, **versions).SerializeToString()


def _make_packed(home: Path) -> None:
    """Write Parquet and tar files that cannot be used."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    image = (home / "photo.png").read_bytes()
    rows = pa.table({"image": [{"bytes": image, "path": None}] * 8, "label": [0, 1] * 4})
    described: dict[str, str] = {
        "junk": "{{", "list": "[]", "deep": "[" * 100_000 + "]" * 100_000,
        "number": '{"info": {"features": {"label": {"names": 7}}}}',
        "half": '{"info": {"features": {"label": {"names": ["\\ud800", "b"]}}}}',
    }  # fmt: skip
    for name, text in described.items():
        folder = home / (f"{name}_names" if "names" in text else f"{name}_metadata")
        folder.mkdir()
        pq.write_table(rows.replace_schema_metadata({"huggingface": text}), folder / "train.parquet")
    write(home / "no_rows/train.parquet", "")
    for name, files in {"empty_tar": [], "long_label": [("png", image), ("cls", b"x" * 5000)]}.items():
        (home / name).mkdir()
        with tarfile.open(home / name / "train.tar", "w") as archive:
            for number in range(8):
                for ending, content in files:
                    member = tarfile.TarInfo(f"{number}.{ending}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))


def _make_stores(home: Path) -> None:
    """Create an MLflow database without a sweep, another database, and a file that is no database."""
    open_store(f"sqlite:///{home}/store.db", "technique-search")
    with sqlite3.connect(home / "other.db") as store:
        store.execute("CREATE TABLE birds (name TEXT)")
    write(home / "junk.db", "no database" * 100)
    write(home / "empty.db", "")
    (home / "folder.db").mkdir()
