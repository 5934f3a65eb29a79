"""Several devices in one training, here two processes on CPUs: the result is the same as on one device."""

from __future__ import annotations

import errno
import gc
import io
import ipaddress
import json
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import cv2
import numpy as np
import psutil
import pytest
import timm
import torch
from timm.layers import BatchNormAct2d
from torch import distributed, nn

from training.distributed import parallel, progress
from training.distributed.rank import Rank
from training.distributed.sync_batch_norm import synchronise
from training.errors import Diverged, LostDevice, UserError
from training.evaluate import read_trained
from training.loop.classifier import Classifier
from training.loop.job import TrainingJob
from training.process.resources import Resources
from training.recipe import read_recipe
from training.techniques.optimization.accumulation import weigh_batches
from training.train import train

CPUS = Resources(threads=2)
TINY = {
    # Batches of 14, 14, 14, 14 and 5: shares of 3 and 2 images in the last.
    "data": {"name": "digits", "train_size": 61},
    "backbone": {"name": "test_resnet", "weights": "none"},
    "batch_size": 14,
    # In float64 two orders of addition give the same result.
    "precision": {"mode": "64-true"},
}
MACHINE = ("images_per_second", "peak_memory_mb", "evaluation_memory_mb")
MACHINE += ("train_seconds", "evaluation_seconds", "checkpoint_seconds", "finder_seconds")


EARLIER: set[psutil.Process] = set()  # such as the fork server of a sweep that an earlier test ran in this process


@pytest.fixture(autouse=True)
def remember_earlier_processes():
    EARLIER.update(psutil.Process().children(recursive=True))


def new_processes() -> list[psutil.Process]:
    return [process for process in psutil.Process().children(recursive=True) if process not in EARLIER]


def run(folder: Path, devices: int, **fields):
    values = {**TINY, **fields}
    if devices > 1:
        values["data_parallel"] = {"devices": devices, "sync_batch_norm": True, **fields.get("data_parallel", {})}
    on_report = values.pop("on_report", lambda report: True)
    folder.mkdir(exist_ok=True)
    outcome = train(read_recipe(values), folder, resources=CPUS if devices > 1 else Resources(), on_report=on_report)
    assert_alone()
    return outcome


def assert_alone():
    """Check that no process, no group and no state of torch is left."""
    assert not new_processes()
    assert not distributed.is_initialized()
    assert not sys.excepthook.__module__.startswith("torch")


def assert_same(one: Path, other: Path, *outcomes):
    for name in ("last.ckpt", "best.ckpt"):
        ours, theirs = (torch.load(folder / name, weights_only=True)["state_dict"] for folder in (one, other))
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-8)
    answers = [outcome.reports[-1] for outcome in outcomes]
    assert answers[0].labels == answers[1].labels
    said = (torch.tensor(list(bytes.fromhex(report.probabilities))).int() for report in answers)
    torch.testing.assert_close(*said, rtol=0, atol=1)
    for first, second in zip(*(outcome.reports for outcome in outcomes), strict=True):
        assert first.metrics.keys() == second.metrics.keys()
        for metric in first.metrics.keys() - set(MACHINE):
            assert first.metrics[metric] == pytest.approx(second.metrics[metric], rel=1e-6, abs=1e-8), metric
        assert [pytest.approx(point, rel=1e-6) for point in first.steps] == second.steps
        assert first.best_epoch == second.best_epoch


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_stopped_and_resumed_training_on_two_devices_ends_as_on_one(strategy, tmp_path):
    recipe = {
        "epochs": 2,
        "random_crop": {"name": "padded"},
        "flip": {"probability": 0.5},
        "augmentation": {"policy": "affine_colour"},
        "class_balance": {"name": "weights", "power": 1.0},
        "loss": {"name": "focal"},
        "flip_average": {"enabled": True},
        "label_smoothing": {"alpha": 0.1},
        "accumulation": {"batches": 2},
        "gradient_clipping": {"value": 1.0},
        "layer_decay": {"factor": 0.7},
        "no_decay": {"enabled": True},
        "backbone": {"name": "test_resnet", "weights": "letters"},
        "l2_sp": {"alpha": 0.1, "beta": 0.1},
        "optimizer": {"name": "momentum", "lr": 0.05, "weight_decay": 0.1},
        "averaging": {"name": "ema"},
        "activation_checkpointing": {"enabled": True},
        "schedule": {"name": "cosine"},
    }
    alone = run(tmp_path / "alone", 1, **recipe)
    recipe["data_parallel"] = {"strategy": strategy}
    stopped = run(tmp_path / "both", 2, **recipe, on_report=lambda report: False)
    assert (stopped.state, len(stopped.reports)) == ("stopped", 1)
    heard = []
    both = run(tmp_path / "both", 2, **recipe, on_report=lambda report: heard.append(report.epoch) or True)
    assert (both.state, heard) == ("completed", [1, 2])
    assert_same(tmp_path / "alone", tmp_path / "both", alone, both)
    # The processes share one memory.
    assert both.reports[-1].metrics["peak_memory_mb"] > 1.3 * alone.reports[-1].metrics["peak_memory_mb"]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_devices_leave_frozen_weights_out_and_continue_without_them(strategy, tmp_path):
    weights = timm.create_model("test_resnet").state_dict()
    torch.save(weights, tmp_path / "weights.pth")
    backbone = {"name": "test_resnet", "weights": str(tmp_path / "weights.pth")}
    recipe = {"epochs": 2, "unfreeze": {"level": "most"}, "backbone": backbone, "precision": {"mode": "32-true"}}
    recipe["data_parallel"] = {"strategy": strategy}
    whole = run(tmp_path / "whole", 2, **recipe)
    run(tmp_path / "stopped", 2, **recipe, on_report=lambda report: False)
    resumed = run(tmp_path / "stopped", 2, **recipe)
    assert_same(tmp_path / "whole", tmp_path / "stopped", whole, resumed)
    left_out = torch.load(tmp_path / "stopped" / "best.ckpt", weights_only=True)["given"]
    assert len(left_out) == 8
    read = read_trained(tmp_path / "stopped" / "best.ckpt")["state_dict"]
    assert read.keys() == weights.keys()
    assert all(torch.equal(read[name], weights[name]) for name in left_out)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_training_that_unfreezes_and_averages_ends_on_two_devices_as_on_one(strategy, tmp_path):
    recipe = {
        "epochs": 3,
        "class_balance": {"name": "sampler"},
        "optimizer": {"name": "sgd", "lr": 0.01},
        "lr_scaling": {"rule": "linear", "reference": 14},
        # The gradients of unfrozen parameters are averaged as well.
        "unfreeze": {
            "level": "most",
            "milestones": [1],
            "milestone_lr": "auto/3" if strategy == "ddp" else "keep",
            "adapt_statistics": True,
        },
        "averaging": {"name": "swa", "start": 0.3},
    }
    alone = run(tmp_path / "alone", 1, **recipe)
    recipe["data_parallel"] = {"strategy": strategy}
    if strategy == "fsdp":  # plain sgd keeps nothing to divide, and some of the weights are not its yet
        run(tmp_path / "both", 2, **recipe, on_report=lambda report: report.epoch < 2)
    both = run(tmp_path / "both", 2, **recipe)
    assert_same(tmp_path / "alone", tmp_path / "both", alone, both)


@pytest.mark.slow
def test_a_device_holds_its_share_of_a_sharded_model_and_of_what_its_optimizer_keeps(tmp_path):
    seen = []

    def look(report):
        classifier = next(thing for thing in gc.get_objects() if isinstance(thing, Classifier))
        states = [state for one in classifier.trainer.optimizers[0].state.values() for state in one.values()]
        seen.extend([list(classifier.parameters()), [state for state in states if state.dim()]])
        return True

    parallel = {"strategy": "fsdp"}
    run(tmp_path, 2, epochs=1, optimizer={"name": "adamw"}, data_parallel=parallel, on_report=look)
    shares = [sum(part.to_local().numel() for part in parts) / sum(map(torch.numel, parts)) for parts in seen]
    assert shares == pytest.approx([0.5, 0.5], abs=0.02)


@pytest.mark.slow
def test_a_device_that_dies_ends_the_training(tmp_path):  # gloo would wait for half an hour, longer than a test may
    died = []

    def kill(report):
        (other,) = new_processes()
        other.send_signal(signal.SIGKILL)
        died.append(other)
        return True

    with pytest.raises(
        RuntimeError, match=r"data_parallel.devices=2: the process of one device was ended by signal 9\."
    ):
        run(tmp_path, 2, epochs=3, on_report=kill)
    assert len(died) == 1
    assert_alone()


HANGS = """
from training.distributed import progress
from training.loop.classifier import Classifier
progress.STEP_SECONDS = 10
step = Classifier.training_step
def hang(self, batch, index):
    if self.current_epoch == 1 and index == 1:
        import time
        time.sleep(600)
    return step(self, batch, index)
Classifier.training_step = hang
"""


@pytest.mark.slow
def test_a_device_that_hangs_ends_the_training_and_the_checkpoint_before_it_counts(tmp_path, monkeypatch):
    monkeypatch.setattr("training.loop.trainer.STEP_SECONDS", 10.0)
    monkeypatch.setattr(
        parallel, "PROGRAM", parallel.PROGRAM.replace("from training", f"exec({HANGS!r}); from training", 1)
    )
    # A report that takes longer than a step is no hang: the other device waits for it.
    reported = []
    with pytest.raises(
        LostDevice, match=r"^data_parallel.devices=2: a device hangs: all of them made no progress for 11 s\.$"
    ):
        run(tmp_path, 2, epochs=3, on_report=lambda report: reported.append(report.epoch) or not time.sleep(12))
    assert reported == [1]
    assert_alone()
    monkeypatch.undo()
    assert [report.epoch for report in run(tmp_path, 2, epochs=3).reports] == [1, 2, 3]


@pytest.mark.slow
def test_a_process_that_hangs_while_it_leads_ends_with_one_sentence(tmp_path):
    code = f"""
import sys
sys.path.insert(0, {str(parallel.ROOT)!r})
from training.distributed import progress
progress.STEP_SECONDS, progress.END_SECONDS = 10, 1
{HANGS}
from pathlib import Path
from training.train import Resources, train
from training.recipe import read_recipe

recipe = read_recipe({TINY | {"epochs": 2, "data_parallel": {"devices": 2}}!r})
train(recipe, Path("."), resources=Resources(threads=2))
"""
    # The other device keeps the usual limit until it has ended its step, and waits there.
    code = code.replace(
        "from pathlib",
        "from training.distributed import parallel\n"
        "parallel.PROGRAM = parallel.PROGRAM.replace('from training', "
        "'from training.distributed import progress; progress.STEP_SECONDS = 10; from training')\nfrom pathlib",
    )
    ended = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=230
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("data_parallel.devices=2: device 1 hangs")
    assert ended.stderr.endswith("made no progress for 11 s. The process ends.\n")


def await_hang_with(table, *looks):
    """Return the sentence when each look finds the next change of the table; after the last one the training is over."""

    class Clock:
        def __init__(self):
            self.looks = iter(looks)

        def wait(self, seconds):
            change = next(self.looks, None)
            if change:
                change()
            return change is None

    return progress.await_hang(table, Clock())


def test_a_device_hangs_that_made_no_progress_for_longer_than_any_device_may_take(tmp_path):
    table = progress.open_table(tmp_path, 2, is_new=True)

    def go_on(*ranks):
        for rank in ranks:
            table[rank, 0] += 1

    def limit(seconds, *ranks):
        table[ranks, 1] = seconds

    hours = [lambda: go_on(0, 1)] * 5000
    quiet = [lambda: None] * 111
    assert await_hang_with(table, *hours, *[lambda: None] * 1800) is None
    assert "for 1801 s" in await_hang_with(table, *[lambda: None] * 1801)
    limit(110, 0, 1)
    assert await_hang_with(table, *quiet[1:], *hours[:1], *quiet[1:]) is None
    assert "a device hangs: all of them made no progress for 111 s" in await_hang_with(table, *quiet)
    assert "device 2 hangs: it made no progress for 111 s" in await_hang_with(table, *[lambda: go_on(0)] * 111)
    # While the first device writes a checkpoint, the other one waits for it in a step, and then has its full time again.
    writes, returns = lambda: limit(1800, 0), lambda: limit(110, 0)
    assert await_hang_with(table, writes, *quiet, *quiet, returns, *quiet[1:], *hours[:1]) is None


@pytest.mark.slow
def test_the_processes_of_a_training_listen_only_on_this_machine(tmp_path):
    seen = []

    def look(report):
        own = psutil.Process()
        seen.extend(
            c.laddr.ip for one in (own, *new_processes()) for c in one.net_connections() if c.status == "LISTEN"
        )
        return True

    run(tmp_path, 2, epochs=1, on_report=look)
    assert len(seen) >= 2
    assert [ip for ip in seen if not ipaddress.ip_address(ip).is_loopback] == []


@pytest.mark.parametrize(
    "error",
    [
        UserError("epochs=0: give 1 or more."),
        Diverged("the loss became infinite or NaN"),
        MemoryError("no room"),
        OSError(errno.ENOSPC, "No space left on device", "/data/last.ckpt"),
        OSError("a library's own words"),
    ],
)
def test_an_error_of_another_process_keeps_its_type_and_its_message(error):
    found = parallel._read_error(parallel._write_error(error, Rank(1, 2)))
    assert (type(found), str(found)) == (type(error), str(error))
    assert getattr(found, "errno", None) == getattr(error, "errno", None)
    assert found.__notes__[0].startswith("On device 2 of 2:")


def test_another_type_of_error_of_another_process_becomes_a_runtime_error_with_its_name():
    found = parallel._read_error(parallel._write_error(KeyError("optimizer"), Rank(1, 2)))
    assert (type(found), str(found)) == (RuntimeError, "KeyError: 'optimizer'")
    found = parallel._read_error(parallel._write_error(torch.OutOfMemoryError("CUDA out of memory"), Rank(1, 2)))
    assert (type(found), str(found)) == (MemoryError, "CUDA out of memory")


def test_a_job_comes_back_from_json_as_it_was(tmp_path):
    job = TrainingJob(read_recipe(TINY), tmp_path, "val_loss", Resources(2, 1, "cuda", 2), release=True)
    assert TrainingJob.from_json(json.loads(json.dumps(job.to_json()))) == job


class Harm:
    """An object whose pickle would run code when it is loaded."""

    def __reduce__(self):
        return pytest.fail, ("a pickle from another process was loaded",)


def test_data_from_another_process_is_never_unpickled(monkeypatch, group_of_one):
    file = io.BytesIO()
    torch.save(Harm(), file)
    sent = torch.tensor(list(file.getvalue()), dtype=torch.uint8)

    def receive(shares, own):
        for share in shares:
            share.copy_(torch.tensor(len(sent)) if own.dtype == torch.int64 else sent)

    monkeypatch.setattr(distributed, "all_gather", receive)
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        Rank(0, 2).gather(1.0)


def test_a_device_that_does_not_start_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(parallel, "PROGRAM", "raise SystemExit(3)")
    with pytest.raises(RuntimeError, match="the process of one device ended with exit code 3"):
        run(tmp_path, 2)
    assert_alone()


def test_a_device_that_the_system_killed_for_memory_raises_a_memory_error(tmp_path, monkeypatch):
    monkeypatch.setattr(parallel, "PROGRAM", "import os; os.kill(os.getpid(), 9)")
    with pytest.raises(RuntimeError, match="was ended by signal 9"):
        run(tmp_path, 2)
    counts = iter([7, 8])
    monkeypatch.setattr(parallel, "count_memory_kills", lambda: next(counts))
    with pytest.raises(MemoryError, match=r"^data_parallel.devices=2: the system killed the process of one device for"):
        run(tmp_path, 2)
    assert_alone()


@pytest.mark.slow
def test_no_device_outlives_the_process_that_leads(tmp_path):
    # The working folder has a package of the same name, as a user's folder may.
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "__init__.py").write_text("raise ImportError('not this one')")
    code = f"""
import sys, time
sys.path.insert(0, {str(parallel.ROOT)!r})
from pathlib import Path
from training.train import Resources, train
from training.recipe import read_recipe

def report(report):
    print("reported", flush=True)
    time.sleep(60)

recipe = read_recipe({TINY | {"data_parallel": {"devices": 2}}!r})
train(recipe, Path("."), resources=Resources(threads=2), on_report=report)
"""
    leader = subprocess.Popen([sys.executable, "-P", "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert leader.stdout is not None
    assert leader.stdout.readline() == "reported\n"
    others = psutil.Process(leader.pid).children(recursive=True)
    leader.kill()
    leader.communicate()
    assert len(others) == 1
    assert psutil.wait_procs(others, timeout=10)[1] == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_a_nan_loss_on_one_device_ends_the_training_on_both(tmp_path):
    for number, part in enumerate(["train"] * 8 + ["val"] * 4):
        path = tmp_path / "images" / part / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        # Only one image overflows, and it is in only one share.
        cv2.imwrite(str(path), np.full((32, 32, 3), 255 * (number == 0), np.uint8))
    outcome = run(
        tmp_path / "both",
        2,
        data={"name": "image_folder", "root": str(tmp_path / "images")},
        preprocessing={"image_size": 32, "crop": 1.0, "mean": [0.0] * 3, "std": [2e-39] * 3},
        batch_size=4,
        precision={"mode": "32-true"},
        data_parallel={"sync_batch_norm": False},
    )
    assert outcome.state == "diverged"


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_gpus_train_as_one(strategy, tmp_path):
    for count in (1, 2):
        parallel_fields = {"devices": count, "sync_batch_norm": True, "strategy": strategy} if count > 1 else {}
        (tmp_path / str(count)).mkdir()
        resources = Resources(threads=2, device="cuda", gpus=count)
        train(read_recipe({**TINY, "data_parallel": parallel_fields}), tmp_path / str(count), resources=resources)
    assert_alone()
    ours, theirs = (torch.load(tmp_path / count / "last.ckpt", weights_only=True)["state_dict"] for count in "12")
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7, check_device=False)


def test_more_devices_than_a_training_has_are_refused(tmp_path):
    with pytest.raises(
        UserError, match=r"devices=3, but this training has 2 CPU: .* --cpus-per-trial=3, or take fewer"
    ):
        run(tmp_path, 3, batch_size=16)
    recipe = read_recipe({**TINY, "data_parallel": {"devices": 2}})
    with pytest.raises(UserError, match=r"devices=2, but this training has 1 GPU: .* --gpus-per-trial=2"):
        train(recipe, tmp_path, resources=Resources(threads=8, device="cuda"))


def test_devices_divide_the_cpus():
    whole = Resources(threads=4, workers=4)
    assert (whole.divide(2).threads, whole.divide(2).workers) == (2, 2)
    for threads, workers in ((1, 1), (2, 0), (3, 2)):
        one = Resources(threads, workers).divide(2)
        assert 2 * (one.threads + one.workers) <= threads + workers
        assert one.threads >= 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"data_parallel": {"sync_batch_norm": True}},
            "sync_batch_norm=true does nothing with data_parallel.devices=1",
        ),
        (
            {"data_parallel": {"strategy": "fsdp"}},
            "data_parallel.strategy=fsdp does nothing with data_parallel.devices=1",
        ),
        (
            {"data_parallel": {"devices": 2, "strategy": "fsdp"}, "channels_last": {"enabled": True}},
            "strategy=fsdp does not work with channels_last.enabled=true: leave one out, or use strategy=ddp",
        ),
        ({"data_parallel": {"devices": 3}, "batch_size": 5}, "raise batch_size to 6, or take fewer devices"),
        ({"data_parallel": {"devices": 2}, "batch_size": "auto"}, "batch_size=auto is found by filling one GPU"),
    ],
)
def test_a_conflict_with_several_devices_gives_one_sentence(fields, words):
    with pytest.raises(UserError, match=words):
        read_recipe(fields)


def test_the_weights_of_losses_make_each_step_the_mean_over_its_images():
    batch_sizes, batches, ranks = (7, 7, 5), 2, [Rank(number, 3) for number in range(3)]
    weights = [weigh_batches(batch_sizes, batches, rank) for rank in ranks]
    for start, end in ((0, 2), (2, 3)):
        # Lightning divides by the batches of a step, DDP by the ranks.
        shares = [
            weights[rank.number][index] / batches / rank.count / len(rank.share(range(batch_sizes[index])))
            for rank in ranks
            for index in range(start, end)
        ]
        assert shares == pytest.approx([1 / sum(batch_sizes[start:end])] * len(shares))


def test_joined_shares_come_in_the_order_of_the_whole():
    for size in (6, 7, 8):
        ranks = [Rank(number, 3) for number in range(3)]
        whole = torch.arange(size)
        assert torch.equal(ranks[0].join([torch.tensor(rank.share(range(size))) for rank in ranks]), whole)


@pytest.fixture
def group_of_one():
    hook = sys.excepthook
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()
    sys.excepthook = hook


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda: nn.BatchNorm2d(3), (4, 3, 5, 5)),
        (lambda: nn.BatchNorm1d(3), (8, 3)),
        (lambda: nn.BatchNorm2d(3, affine=False, track_running_stats=False), (4, 3, 5, 5)),
        (lambda: BatchNormAct2d(3, act_layer=nn.SiLU), (4, 3, 5, 5)),
    ],
)
def test_our_synchronised_batch_norm_equals_torchs_on_one_device(layer, shape, momentum, group_of_one):
    plain, ours = nn.Sequential(layer()), nn.Sequential(layer())
    synchronise(ours, "cpu")
    assert type(ours[0]) is not type(plain[0])
    plain[0].momentum = ours[0].momentum = momentum
    for _ in range(3):
        images, target = torch.randn(shape) * 3 + 10, torch.randn(shape)
        results = []
        for norm in (plain, ours):
            own = images.clone().requires_grad_()
            out = norm(own)
            (out * target).sum().backward()
            results.append((out, own.grad, [p.grad for p in norm.parameters()], norm.state_dict(), norm.eval()(images)))
            norm.train()
        torch.testing.assert_close(results[0], results[1], rtol=1e-3, atol=1e-4)
