"""Recipes that cannot be trained: the row's name, the command, words of its error."""

from __future__ import annotations


def train(override: str) -> str:
    return f"train recipe.yaml --out fresh '{override}'"


TRAIN = {
    "train a missing recipe": ("train recipies.yaml", "recipies.yaml", "no such file", "Did you mean recipe.yaml?"),
    "train a folder": ("train photos", "photos"),
    "train an image": ("train photo.png", "photo.png", "UTF-8"),
    "train a dangling link": ("train bad/dangling.yaml", "bad/dangling.yaml", "no such file"),
    "train an empty word": ("train ''", "no such space", "card, full, quick"),
    "train two recipes": ("train recipe.yaml space.yaml", "space.yaml", "path=value"),
    "train with a misspelt override": (train("epcohs=3"), "epcohs", "Did you mean epochs?"),
    "train no epochs": (train("epochs=0"), "epochs=0", "greater than or equal to 1"),
    "train with a conflict": (train("schedule={name: cosine, warmup_epochs: 5}"), "warmup_epochs=5", "epochs"),
    "train for an unknown metric": ("train recipe.yaml --metric accuracy", "--metric=accuracy", "val_accuracy"),
    "train for an empty metric": ("train recipe.yaml --metric ''", "--metric=", "val_accuracy"),
    "train on no CPU": ("train recipe.yaml --cpus 0", "--cpus=0", "greater than or equal to 1"),
    "train on half a CPU": ("train recipe.yaml --cpus 0.5", "--cpus=0.5", "whole number"),
    "train on an unknown device": ("train recipe.yaml --device tpu --out fresh", "--device=tpu", "cpu or cuda"),
    "train on the device of no name": ("train recipe.yaml --device '' --out fresh", "--device=", "cpu or cuda"),
    "train onto a file": ("train recipe.yaml --out notes.txt", "--out=notes.txt", "cannot be written to", "Name another place"),
    "train below a file": ("train recipe.yaml --out notes.txt/mine", "--out=notes.txt/mine"),
    "train into a folder of other things": ("train recipe.yaml --out photos", "--out=photos", "Name a new folder"),
    "train into a finished training": ("train recipe.yaml --out exports/good", "--out=exports/good", "Name a new folder"),
    "train with a silent server": ("train recipe.yaml --out fresh --tracking-uri http://127.0.0.1:9", "--tracking-uri", "127.0.0.1:9"),
    "train with a store by its path": ("train recipe.yaml --out fresh --tracking-uri mlflow.db", "--tracking-uri", "sqlite:///mlflow.db"),
    "train without images": (train("data={name: image_folder, root: nowhere}"), "data.root=nowhere", "no such folder"),
    "train an unknown backbone": (train("backbone.name=resnet19"), "backbone.name=resnet19"),
    "train a backbone of no name": (train("backbone.name="), "backbone.name"),
    "train with weights that are not there": (train("backbone.weights=nothing.pt"), "backbone.weights=nothing.pt", "no such file"),
    "train with weights that are a folder": (train("backbone.weights=photos"), "backbone.weights=photos"),
    "train with junk weights": (train("backbone.weights=bad/weights.pt"), "backbone.weights=bad/weights.pt", "not a file of weights"),
    "train with junk safetensors": (train("backbone.weights=bad/weights.safetensors"), "backbone.weights=bad/weights.safetensors", "not a file of weights"),
    "train with weights of another model": (train("backbone.weights=exports/other-weights/weights.safetensors"), "backbone.weights="),
    "train with a missing augmentation": (train("augmentation={policy: file, path: nothing.json}"), "augmentation.path=nothing.json"),
    "train with half an augmentation": (train("augmentation={policy: file, path: bad/augmentation.json}"), "augmentation.path=bad/augmentation.json"),
    "train with a list for an augmentation": (train("augmentation={policy: file, path: bad/augmentation_list.json}"), "augmentation.path=bad/augmentation_list.json"),
    "train with a strange augmentation": (train("augmentation={policy: file, path: bad/augmentation_stranger.json}"), "augmentation.path=bad/augmentation_stranger.json"),
    "run with a missing augmentation": ("run quick 'augmentation={policy: file, path: nothing.json}'", "augmentation.path=", "nothing.json"),
    "run with an augmentation without its file": ("run quick 'augmentation={policy: file}'", "augmentation", "path"),
    "run an unknown backbone": ("run quick backbone.name=resnet19", "backbone.name=resnet19"),
    "run with weights that are not there": ("run quick backbone.weights=nothing.pt", "backbone.weights=", "nothing.pt", "no such file"),
}  # fmt: skip
