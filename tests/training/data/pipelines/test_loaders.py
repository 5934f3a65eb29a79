import gc
import random
from dataclasses import replace

import numpy as np
import psutil
import pytest
import torch

from training import train
from training.data.files.decode import UnreadableImage
from training.data.files.images import ImagePart
from training.data.load_data import load_data
from training.data.pipelines.loaders import list_batch_sizes, make_eval_loader, make_loaders
from training.data.preprocessing.defaults import resolve_preprocessing
from training.distributed.rank import ALONE, Rank
from training.recipe import read_recipe
from training.resolve import resolve_recipe
from training.train import prepare


def resolved(data, /, **values):
    recipe = read_recipe({"backbone": {"weights": "none"}, **values})
    return recipe.model_copy(update={"preprocessing": resolve_preprocessing(recipe.preprocessing, data, None)})


def few_digits(count=40, **values):
    recipe = read_recipe({"data": {"name": "digits", "train_size": count, **values.pop("data", {})}, **values})
    data = load_data(recipe.data)
    return data, recipe.model_copy(update={"preprocessing": resolve_preprocessing(recipe.preprocessing, data, None)})


def parts_of(data):
    return {"train": data.train, "val": data.val, "test": data.test}


def batches(loader, epoch=0):
    loader.batch_sampler.sampler.set_epoch(epoch)
    return list(loader)


def same(some, others):
    pairs = zip(some, others, strict=True)
    return all(torch.equal(x, v) and torch.equal(y, w) for (x, y), (v, w) in pairs)


def test_batches_are_normalised_float_images_and_integer_labels():
    data, recipe = few_digits(1000)
    images, labels = zip(*batches(make_loaders(data, recipe, workers=0).train), strict=True)
    assert (images[0].dtype, labels[0].dtype) == (torch.float32, torch.int64)
    assert images[0].shape == (32, 3, 32, 32)
    assert images[0].is_contiguous()
    whole = torch.cat(images)
    assert abs(whole.mean()) < 1e-3
    assert abs(whole.std() - 1) < 1e-3


def test_normalising_equals_that_of_torchvision():
    from torchvision.transforms.v2.functional import normalize

    data, recipe = few_digits()
    (images, labels), *_ = make_loaders(data, recipe, workers=0).val
    pixels = torch.from_numpy(data.val.images[: len(images)]).permute(0, 3, 1, 2) / 255
    expected = normalize(pixels, recipe.preprocessing.mean, recipe.preprocessing.std)
    torch.testing.assert_close(images, expected, atol=1e-5, rtol=1e-5)
    assert labels.tolist() == data.val.labels[: len(labels)].tolist()


def test_validation_images_are_neither_shuffled_nor_augmented():
    data, plain = few_digits()
    augmented = plain.model_copy(
        update={"augmentation": read_recipe({"augmentation": {"policy": "affine_colour"}}).augmentation}
    )
    first, second = (make_loaders(data, recipe, workers=0) for recipe in (plain, augmented))
    assert same(first.val, second.val)


@pytest.mark.parametrize(
    ("fields", "most"),
    [
        ({"batch_size": 300}, 256),
        ({"batch_size": 100}, 100),
        ({"batch_size": 8}, 64),  # the images are small
        ({"batch_size": 8, "preprocessing": {"image_size": 224}}, 8),
        ({"batch_size": 2, "preprocessing": {"image_size": 1024}}, 2),
        ({"batch_size": 100, "data_parallel": {"devices": 2}}, 64),
    ],
)
def test_an_evaluation_takes_as_many_images_at_a_time_as_the_training_or_more_if_they_are_small(fields, most):
    data, recipe = few_digits(**fields)
    loader = make_eval_loader(data.train.join(data.val), recipe, workers=0)
    assert 0.5 * most < max(map(len, loader.batch_sampler)) <= most


def test_an_evaluation_starts_no_more_workers_than_it_has_batches():
    data, recipe = few_digits(preprocessing={"image_size": 80}, batch_size=32)
    part = data.val.select(np.arange(60))
    assert make_eval_loader(part, recipe, workers=8).num_workers == 2


@pytest.mark.parametrize(
    ("count", "batch_size", "sizes"),
    [(33, 32, (32,)), (34, 32, (32, 2)), (32, 32, (32,)), (20, 1, (1,) * 20), (20, 50, (20,)), (65, 32, (32, 32))],
)
def test_a_last_batch_of_one_is_dropped(count, batch_size, sizes):
    data, recipe = few_digits(count, batch_size=batch_size)
    loaders = make_loaders(data, recipe, workers=0)
    assert loaders.train_batches.batch_sizes == sizes
    assert tuple(len(labels) for _, labels in batches(loaders.train)) == sizes
    assert len(loaders.train) == len(sizes)


@pytest.mark.parametrize(
    ("count", "batch_size", "ranks", "sizes"),
    [
        (50, 16, 1, (16, 16, 9, 9)),
        (66, 32, 1, (32, 17, 17)),
        (135, 64, 1, (64, 36, 35)),
        (136, 64, 1, (64, 64, 8)),
        (33, 32, 1, (32,)),
        (5, 32, 1, (5,)),
        (79, 32, 2, (32, 24, 23)),
        (80, 32, 2, (32, 32, 16)),
    ],
)
def test_with_batch_norm_the_last_two_batches_share_a_small_rest(count, batch_size, ranks, sizes):
    assert list_batch_sizes(count, batch_size, Rank(0, ranks), has_batch_norm=True) == sizes
    # No batch is added or removed, so a training of an earlier version goes on with the same learning rates.
    assert len(list_batch_sizes(count, batch_size, Rank(0, ranks))) == len(sizes)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "batch_size"), [(50, 16), (66, 32), (258, 64)])
def test_a_rest_of_two_images_does_not_ruin_a_model_with_batch_norm(fit, count, batch_size, monkeypatch):
    def score():
        return fit(
            data={"name": "digits", "train_size": count},
            backbone={"name": "test_resnet", "weights": "letters"},
            preprocessing={"image_size": 32},
            batch_size=batch_size,
            epochs=10,
        ).metrics[-1]["val_accuracy"]

    shared = score()
    monkeypatch.setattr(train, "list_batch_sizes", lambda count, size, rank, _: list_batch_sizes(count, size, rank))
    assert shared > score() + 0.15  # with two images in the last batch


def test_a_model_without_batch_norm_keeps_its_last_batch(tiny_recipe):
    data, sizes = load_data(tiny_recipe().data), {}
    for name in ("test_resnet", "test_vit"):
        recipe = resolve_recipe(tiny_recipe(backbone={"name": name, "weights": "none"}, batch_size=31), data, "cpu")
        sizes[name] = prepare(data, "cpu", ALONE, recipe).plan.batch_sizes[-3:]
    assert sizes == {"test_resnet": (31, 17, 16), "test_vit": (31, 31, 2)}


def test_a_training_part_of_one_image_still_makes_a_batch():
    data, recipe = few_digits()
    data = replace(data, train=data.train.select(np.array([0])))
    loaders = make_loaders(data, recipe, workers=0)
    assert [len(labels) for _, labels in batches(loaders.train)] == [1] == list(loaders.train_batches.batch_sizes)


def test_an_epoch_can_be_shorter_or_longer_than_a_pass():
    for size in (16, 90):
        data, recipe = few_digits(40, data={"epoch_size": size})
        loaders = make_loaders(data, recipe, workers=0)
        assert (
            sum(len(labels) for _, labels in batches(loaders.train)) == size == sum(loaders.train_batches.batch_sizes)
        )


@pytest.mark.parametrize("policy", ["none", "affine_colour"])
@pytest.mark.parametrize("crop", ["none", "padded", "resized"])
def test_workers_and_resuming_change_no_batch(photos, policy, crop, streaming):
    spec = {"name": "image_folder", "root": str(photos({"cat": 20, "dog": 20}))}
    data = load_data(read_recipe({"data": spec}).data)
    parts = {"augmentation": {"policy": policy}, "random_crop": {"name": crop}, "flip": {"probability": 0.5}}
    recipe = resolved(data, data=spec, **parts, batch_size=8)
    straight = make_loaders(data, recipe, workers=0)
    epochs = [batches(straight.train, epoch) for epoch in range(3)]
    assert not same(epochs[0], epochs[1])
    resumed = make_loaders(data, recipe, workers=2)
    assert same(batches(resumed.train, 2), epochs[2])
    assert same(batches(resumed.train, 0), epochs[0])
    assert same(resumed.val, straight.val)
    resumed.close()


def test_lightning_sets_the_samplers_epoch():
    import lightning.pytorch as L

    data, recipe = few_digits()
    loaders = make_loaders(data, recipe, workers=0)
    seen = []

    class Module(L.LightningModule):
        def training_step(self, batch, index):
            seen.append((self.current_epoch, batch[0].clone()))

        def configure_optimizers(self):
            return None

    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    L.Trainer(max_epochs=2, accelerator="cpu", **quiet).fit(Module(), loaders.train)
    fresh = make_loaders(data, recipe, workers=0)
    expected = [(epoch, images) for epoch in range(2) for images, _ in batches(fresh.train, epoch)]
    assert len(seen) == len(expected)
    assert [(e, f) for (e, x), (f, y) in zip(seen, expected, strict=True) if not (e == f and torch.equal(x, y))] == []


def test_the_seed_of_the_recipe_orders_and_augments():
    data, recipe = few_digits(augmentation={"policy": "affine_colour"})
    other = recipe.model_copy(update={"seed": 1})
    first, second = (make_loaders(data, r, workers=0).train for r in (recipe, other))
    assert not same(batches(first), batches(second))


def test_loading_draws_nothing_from_global_generators():
    data, recipe = few_digits(augmentation={"policy": "affine_colour"})
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    loaders = make_loaders(data, recipe, workers=0)
    for loader in (loaders.train, loaders.val):
        list(loader)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.array_equal(np.random.get_state()[1], states[1])
    assert random.getstate() == states[2]


class _Forbidden:
    def __getattr__(self, name):
        raise AssertionError(f"the test split was touched: {name}")


def test_no_loader_of_the_search_touches_the_test_split():
    data, recipe = few_digits()
    loaders = make_loaders(replace(data, test=_Forbidden()), recipe, workers=0)
    held_out = {image.tobytes() for image in data.test.images}
    assert not held_out & {image.tobytes() for part in (data.train, data.val) for image in part.images}
    for loader in (loaders.train, loaders.val):
        list(loader)


def test_the_test_part_has_a_loader_of_its_own():
    data, recipe = few_digits()
    loader = make_eval_loader(data.test, recipe, workers=0)
    assert torch.equal(torch.cat([labels for _, labels in loader]), torch.from_numpy(data.test.labels))


@pytest.mark.parametrize("count", [2, 8, 9, 16, 17, 31])
def test_each_of_several_ranks_evaluates_its_images_in_as_many_batches(count, monkeypatch):
    monkeypatch.setattr("training.data.pipelines.loaders.choose_eval_batch", lambda recipe: 4)
    data, recipe = few_digits()
    part, ranks = data.test.select(np.arange(count)), [Rank(number, 2) for number in range(2)]
    labels = [[labels for _, labels in make_eval_loader(part, recipe, workers=0, rank=rank)] for rank in ranks]
    assert {len(own) for own in labels} == {-(-count // 8)}
    assert max(len(batch) for own in labels for batch in own) <= 4
    assert ranks[0].join([torch.cat(own) for own in labels]).tolist() == part.labels.tolist()


@pytest.mark.parametrize("backend", ["albumentations", "tensor"])
@pytest.mark.parametrize(("width", "size", "crop"), [(32, 48, 0.9), (32, 32, 0.9), (24, 32, 1.0)])
def test_preparing_each_time_gives_the_same_as_preparing_once(monkeypatch, width, size, crop, backend):
    preprocessing, augmentation = {"image_size": size, "crop": crop}, {"policy": "none", "backend": backend}
    data, recipe = few_digits(preprocessing=preprocessing, augmentation=augmentation)
    narrow = {name: ImagePart(part.labels, part.images[:, :, :width]) for name, part in parts_of(data).items()}
    data = replace(data, **narrow)
    kept = make_loaders(data, recipe, workers=0)
    kept_val, kept_train = kept.val, kept.train  # they prepare their images now
    monkeypatch.setattr("training.data.preprocessing.transform.KEPT_BYTES", 0)
    fresh = make_loaders(data, recipe, workers=0)
    assert [loader.dataset.fits_each for loader in (kept_val, fresh.val)] == [False, True]
    assert same(kept_val, fresh.val)
    assert same(batches(kept_train), batches(fresh.train))


@pytest.mark.parametrize("workers", [0, 2])
def test_an_image_that_breaks_during_training_is_named(photos, workers, streaming):
    root = photos({"cat": 10, "dog": 10})
    spec = {"name": "image_folder", "root": str(root)}
    data = load_data(read_recipe({"data": spec}).data)
    recipe = resolved(data, data=spec)
    broken = data.train.images.paths[3]
    with open(broken, "wb") as file:
        file.write(b"no image")
    loaders = make_loaders(data, recipe, workers=workers)
    with pytest.raises(UnreadableImage, match=rf"^{broken}: this image cannot be read \(not an image\)"):
        list(loaders.train)
    loaders.close()


@pytest.fixture
def running(photos, streaming):
    """Return loaders in the middle of an epoch, and their worker processes."""
    spec = {"name": "image_folder", "root": str(photos({"cat": 10, "dog": 10}))}
    data = load_data(read_recipe({"data": spec}).data)
    before = set(psutil.Process().children(recursive=True))
    loaders = make_loaders(data, resolved(data, data=spec, batch_size=4), workers=2)
    next(iter(loaders.train))
    list(loaders.val)
    workers = set(psutil.Process().children(recursive=True)) - before
    assert len(workers) >= 3  # two for training, one for the few images of the validation
    return [loaders], workers


def test_workers_end_with_their_loader(running):
    held, workers = running
    held.clear()
    gc.collect()
    _, alive = psutil.wait_procs(workers, timeout=20)
    assert not alive


def test_closing_ends_workers_at_once_also_in_a_reference_cycle(running, monkeypatch):
    # How long torch would wait for each worker: longer than a test may take.
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 1000)
    held, workers = running
    held.append(held)
    held[0].train.__dict__["cycle"] = held
    held[0].close()
    held[0].close()
    _, alive = psutil.wait_procs(workers, timeout=20)
    assert not alive
    assert len(list(held[0].train)) > 0  # the loader can start again
    held[0].close()
