"""Distillation: the loss is Hinton's, the teacher sees the student's images and stays as it is, and a resume is exact."""

from __future__ import annotations

import json

import pytest
import torch
from torch.nn import functional as F

from analysis.export.bundle import export_model
from analysis.export.summary import Provenance
from tests.analysis.made_up import OUTSIDE
from training.errors import UserError
from training.loop.checkpoint import read_checkpoint
from training.loop.classifier import Classifier
from training.model.teacher import TrainedTeacher, read_teacher
from training.recipe import read_recipe
from training.techniques.loss.distillation import Distillation

LETTERS = {"name": "test_resnet", "weights": "letters"}
MIXED = {"mixup": {"alpha": 0.4}, "flip": {"probability": 0.5}, "augmentation": {"policy": "affine_colour"}}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """The folder of a trained teacher with another size of image and another normalisation than the student's."""
    from training.train import train

    folder = tmp_path_factory.mktemp("teacher")
    recipe = {
        "data": {"name": "digits", "train_size": 300},
        "backbone": LETTERS,
        "preprocessing": {"image_size": 40, "mean": [0.4, 0.5, 0.6], "std": [0.3, 0.25, 0.2]},
        "epochs": 6,
        "batch_size": 32,
        "optimizer": {"name": "momentum", "lr": 0.03},
        "schedule": {"name": "cosine"},
    }
    assert train(read_recipe(recipe), folder).reports[-1].score > 0.9
    return folder


@pytest.fixture
def learn(fit, teacher):
    """Train a student; `learn(temperature=4.0)` sets fields of the technique."""

    def run(folder=None, on_report=lambda report: True, distillation=None, **fields):
        taught = {"distillation": {"teacher": str(teacher), **(distillation or {})}}
        return fit(folder=folder, on_report=on_report, **taught, **fields)

    return run


def draw():
    torch.manual_seed(0)
    return 3 * torch.randn(12, 5), torch.randint(5, (12,)), 3 * torch.randn(12, 5)


def join(logits, labels, taught, **fields):
    return Distillation(teacher="a", **fields).join(F.cross_entropy(logits, labels), logits, taught)


def test_at_temperature_1_with_all_weight_the_gradient_is_that_of_the_cross_entropy_with_the_teachers_probabilities():
    logits, labels, taught = draw()
    logits.requires_grad_(True)
    (ours,) = torch.autograd.grad(join(logits, labels, taught, weight=1.0, temperature=1.0), logits)
    (theirs,) = torch.autograd.grad(F.cross_entropy(logits, taught.softmax(1)), logits)
    torch.testing.assert_close(ours, theirs)


def test_at_a_high_temperature_the_gradient_is_the_difference_of_the_centred_logits():
    """Hinton et al. 2015, equations 3 and 4: without the square of T it would vanish with T."""
    logits, labels, taught = (values.double() if values.is_floating_point() else values for values in draw())
    logits.requires_grad_(True)
    (ours,) = torch.autograd.grad(join(logits, labels, taught, weight=1.0, temperature=100.0), logits)
    centred = [values - values.mean(1, keepdim=True) for values in (logits.detach(), taught)]
    expected = (centred[0] - centred[1]) / (5 * 12)
    torch.testing.assert_close(ours, expected, rtol=0, atol=0.05 * float(expected.abs().max()))


def test_the_weight_divides_the_loss_between_labels_and_teacher():
    logits, labels, taught = draw()
    alone = join(logits, labels, taught, weight=1.0, temperature=3.0)
    mixed = join(logits, labels, taught, weight=0.25, temperature=3.0)
    torch.testing.assert_close(mixed, 0.75 * F.cross_entropy(logits, labels) + 0.25 * alone)
    torch.testing.assert_close(join(logits, labels, logits, weight=1.0, temperature=3.0), torch.tensor(0.0))


def test_the_teacher_predicts_the_students_images_as_it_was_trained_to_see_them(teacher):
    from training.data.load_data import load_data
    from training.data.pipelines.loaders import make_eval_loader
    from training.evaluate import predict_part, restore_model
    from training.resolve import resolve_recipe

    saved = read_checkpoint(teacher / "best.ckpt")
    recipe = read_recipe(saved["recipe"])
    data = load_data(recipe.data)
    # The student's images have the teacher's size, so only the normalisation differs, which is undone exactly.
    student = resolve_recipe(read_recipe({**TINY, "preprocessing": {"image_size": 40}}), data, "cpu")
    found = read_teacher(str(teacher), student, data.classes)
    batches = [found.predict(images) for images, _ in make_eval_loader(data.val, student, workers=0)]
    expected, _ = predict_part(restore_model(recipe, saved["state_dict"], 10), data.val, recipe)
    torch.testing.assert_close(torch.cat(batches), expected, rtol=1e-3, atol=1e-3)
    small = resolve_recipe(read_recipe(TINY), data, "cpu")
    resized = read_teacher(str(teacher), small, data.classes)
    images, labels = next(iter(make_eval_loader(data.val, small, workers=0)))
    assert images.shape[-1] == 32
    assert (resized.predict(images).argmax(1) == labels).float().mean() > 0.85


TINY = {"data": {"name": "digits", "train_size": 64}, "backbone": LETTERS, "epochs": 2, "batch_size": 16}


def test_the_teacher_gets_the_same_mixed_images_as_the_student_once_in_each_step(learn, monkeypatch):
    seen, predict, forward = [], TrainedTeacher.predict, Classifier.forward
    monkeypatch.setattr(
        TrainedTeacher, "predict", lambda self, images: seen.append(("teacher", images)) or predict(self, images)
    )
    monkeypatch.setattr(
        Classifier, "forward", lambda self, images: seen.append(("student", images)) or forward(self, images)
    )
    learn(**MIXED, epochs=1)
    taught = [number for number, (who, _) in enumerate(seen) if who == "teacher"]
    assert len(taught) == 4  # none in the validation
    assert [number for number in taught if seen[number + 1][0] != "student"] == []
    assert [number for number in taught if seen[number + 1][1] is not seen[number][1]] == []


@pytest.mark.parametrize("fields", [{"weight": 1.0}, {"temperature": 8.0}])
def test_each_field_changes_the_training(fields, learn, load_weights):
    ours, theirs = (load_weights(learn(distillation=one, epochs=1).folder) for one in ({}, fields))
    assert not torch.equal(ours["fc.weight"], theirs["fc.weight"])


def test_a_student_learns_classes_from_its_teacher_whose_labels_it_never_gets(learn, teacher, tmp_path):
    """With all weight on the teacher, shuffled labels do no harm."""
    shuffled = {"class_balance": {"name": "none"}, "label_smoothing": {"alpha": 0.99}}  # the labels say nothing
    fields = {"backbone": LETTERS, "epochs": 14, "optimizer": {"name": "momentum", "lr": 0.03}, **shuffled}
    taught = learn(distillation={"weight": 1.0, "temperature": 1.0}, **fields)
    assert taught.outcome.reports[-1].score > 0.7
    assert taught.metrics[-1]["train_loss"] < 1.0  # with smoothed labels it would be near log(10)


def test_the_teacher_stays_as_it_is_and_is_in_no_checkpoint(learn, fit, teacher, load_weights):
    before = (teacher / "best.ckpt").read_bytes()
    run, plain = learn(), fit()
    for which in ("last", "best"):
        assert load_weights(run.folder, which).keys() == load_weights(plain.folder, which).keys()
    sizes = [(one.folder / "last.ckpt").stat().st_size for one in (run, plain)]
    assert sizes[0] < 1.05 * sizes[1]
    assert (teacher / "best.ckpt").read_bytes() == before


@pytest.mark.parametrize(
    "fields",
    [
        MIXED,
        {"sam": {"name": "sam"}, "averaging": {"name": "ema"}, "drop_path": {"rate": 0.3}},
        {
            "precision": {"mode": "bf16-mixed"},
            "unfreeze": {"level": "last", "milestones": [1]},
            "accumulation": {"batches": 2},
        },
        {"precision": {"mode": "64-true"}, "optimizer": {"name": "momentum", "lr": "auto"}},
    ],
    ids=["mixed", "two passes", "16 bits", "64 bits"],
)
def test_a_stopped_training_with_a_teacher_continues_to_the_same_numbers(fields, learn, load_weights, tmp_path):
    whole = learn(epochs=3, **fields)
    learn(folder=tmp_path, epochs=3, **fields, on_report=lambda report: False)
    resumed = learn(folder=tmp_path, epochs=3, **fields)
    assert resumed.metrics == whole.metrics
    first, second = load_weights(whole.folder), load_weights(resumed.folder)
    assert [name for name in first if not torch.equal(first[name], second[name])] == []


def export_of(teacher, folder, **changes):
    saved = read_checkpoint(teacher / "best.ckpt")
    source = {
        "metrics": {},
        "metric": "val_accuracy",
        "score": 0.9,
        "standard_error": 0.01,
        "best_epoch": 1,
        "threads": 1,
    }
    facts = Provenance(**{**OUTSIDE, **source, "classes": saved["classes"], **changes})
    export_model(read_recipe(saved["recipe"]), saved["state_dict"], facts, folder)
    return folder


def test_an_export_a_checkpoint_and_the_folder_of_a_trial_are_the_same_teacher(fit, teacher, tmp_path):
    paths = [teacher, teacher / "best.ckpt", export_of(teacher, tmp_path / "export")]
    runs = [fit(epochs=1, distillation={"teacher": str(path)}).metrics for path in paths]
    assert runs[0] == runs[1] == runs[2] != fit(epochs=1).metrics


def test_classes_are_matched_by_name(teacher, tmp_path):
    student = read_recipe({**TINY, "preprocessing": {"mean": [0.5] * 3, "std": [0.2] * 3}})
    saved = read_checkpoint(teacher / "best.ckpt")
    classes = tuple(saved["classes"])
    images = torch.randn(4, 3, 32, 32)
    plain = read_teacher(str(teacher), student, classes).predict(images)
    turned = read_teacher(str(teacher), student, classes[::-1]).predict(images)
    assert torch.equal(turned, plain.flip(1))
    with pytest.raises(UserError, match=r"teacher=.*: its classes are not those of the data \(9, cat\)"):
        read_teacher(str(teacher), student, (*classes[:-1], "cat"))


def test_a_teacher_that_may_know_the_validation_images_is_refused(fit, teacher, tmp_path):
    with pytest.raises(UserError, match=r"was trained with data\.split_seed=0, so on images that data\.split_seed=1"):
        fit(data={"name": "digits", "train_size": 64, "split_seed": 1}, distillation={"teacher": str(teacher)})
    words = r"with data\.split_test=true, so on images that data\.split_test=false validates or tests on\. Use data\.split_test"
    with pytest.raises(UserError, match=words):
        fit(data={"name": "digits", "train_size": 64, "split_test": False}, distillation={"teacher": str(teacher)})
    export = export_of(teacher, tmp_path / "released", trained_on="train and validation")
    with pytest.raises(UserError, match="was trained on the validation images too"):
        fit(distillation={"teacher": str(export)})


def test_a_missing_or_damaged_teacher_ends_in_one_sentence(fit, teacher, tmp_path):
    with pytest.raises(
        UserError, match=r"teacher=/nowhere: neither a best\.ckpt nor an export with weights.*sweep export"
    ):
        fit(distillation={"teacher": "/nowhere"})
    (tmp_path / "best.ckpt").write_bytes(b"junk")
    with pytest.raises(UserError, match=r"best\.ckpt: the checkpoint is damaged"):
        fit(distillation={"teacher": str(tmp_path)})
    export = export_of(teacher, tmp_path / "export")
    (export / "summary.json").write_text(json.dumps({}))
    with pytest.raises(UserError, match=r"not a complete export.*Make it again: sweep export"):
        fit(distillation={"teacher": str(export)})
    with pytest.raises(UserError, match="do nothing without distillation.teacher"):
        read_recipe({"distillation": {"weight": 0.3}})


@pytest.fixture
def predicted(monkeypatch):
    """The sizes of the batches that a teacher has predicted."""
    sizes, predict = [], TrainedTeacher.predict
    monkeypatch.setattr(
        TrainedTeacher, "predict", lambda self, images: sizes.append(len(images)) or predict(self, images)
    )
    return sizes


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"unfreeze": {"level": "last"}},
        {"flip": {"probability": 0.5}},
        {"mixup": {"alpha": 0.4}},
        {"random_erasing": {"probability": 0.5}},
        {"augmentation": {"policy": "affine_colour"}},
        {"progressive_resizing": {"start": 0.5}},
        {"precision": {"mode": "64-true"}},
    ],
)
def test_the_images_are_predicted_in_each_step(fields, learn, predicted):
    learn(epochs=2, **fields)
    assert sum(predicted) == 2 * 64


def test_another_teacher_has_logits_of_its_own(learn, fit, teacher, load_weights):
    other = fit(backbone=LETTERS, epochs=1).folder
    ours, theirs = (learn(distillation={"teacher": str(one)}) for one in (teacher, other))
    assert ours.metrics[0]["train_loss"] != theirs.metrics[0]["train_loss"]
