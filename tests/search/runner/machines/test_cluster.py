import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from itertools import product
from math import inf
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock, patch

import psutil
import pytest
import ray

from search.cli.inspect.mlflow_ui import find_free_port
from search.runner.interrupt import Interrupted, listen
from search.runner.machines import preparation, ray_process
from search.runner.machines.capacity import plan_demand
from search.runner.machines.cluster import Node, fit_to_cluster, list_nodes, this_machine
from search.runner.machines.preparation import MachineFacts, input_key, inputs_of, prepare_cluster, prepare_machine
from search.runner.machines.ray_process import RAY_SETTINGS, start_ray, watch_servers, without_secrets
from spaces.load import load_space
from training.contract.specs import Backbone
from training.errors import UserError
from training.process.resources import split_cpus
from training.process.user import complete_user
from training.recipe import Recipe, read_recipe

LAPTOP = [Node("a", "laptop", 8, 0)]
TINY = Recipe(backbone=Backbone(name="test_resnet", weights="none")).model_dump()
SERVERS = [Node("a", "one", 32, 4), Node("b", "two", 16, 4)]


@pytest.fixture(autouse=True)
def no_fork_server(monkeypatch):
    monkeypatch.setattr("search.runner.machines.ray_process.start_fork_server", lambda: "")


def test_without_gpus_a_trial_gets_one_cpu():
    assert plan_demand(LAPTOP, None, None).count_slots(LAPTOP) == 8


def test_with_gpus_a_trial_gets_one_and_its_share_of_the_cpus():
    demand = plan_demand(SERVERS, None, None)
    assert (demand.cpus, demand.gpus, demand.count_slots(SERVERS)) == (4, 1, 8)


def test_a_fraction_of_a_gpu_holds_more_trials():
    demand = plan_demand(SERVERS, None, 0.5)
    assert (demand.cpus, demand.count_slots(SERVERS)) == (2, 16)


def test_a_trial_can_run_on_a_cpu_although_there_are_gpus():
    assert plan_demand(SERVERS, 1, 0).count_slots(SERVERS) == 48


@pytest.mark.parametrize(
    ("cpus", "gpus", "words"), [(None, 5, "--gpus-per-trial=5: .* has 4"), (64, 0, "--cpus-per-trial=64")]
)
def test_more_than_any_machine_has_is_refused(cpus, gpus, words):
    with pytest.raises(UserError, match=words):
        plan_demand(SERVERS, cpus, gpus)


def test_a_precision_that_no_machine_supports_is_removed_and_reported():
    space = load_space("quick", ["precision.mode={choice: [32-true, 16-mixed]}"])
    reduced, notes = fit_to_cluster(space, can_bf16=True, has_gpus=False)
    assert reduced.values_of("precision.mode") == {"32-true"}
    assert "16-mixed" in notes[0]
    assert "16-mixed" not in reduced.to_yaml()


def test_bfloat16_is_removed_where_a_cpu_only_emulates_it_unless_it_is_fixed():
    reduced, notes = fit_to_cluster(load_space("quick"), can_bf16=False, has_gpus=False)
    assert reduced.values_of("precision.mode") == {"32-true"}
    assert notes == [
        "Removed from the space: precision.mode=bf16-mixed (a CPU here has no bfloat16 arithmetic: it is slower there)."
    ]
    fixed = load_space("quick", ["precision.mode=bf16-mixed"])
    assert fit_to_cluster(fixed, can_bf16=False, has_gpus=False) == (fixed, [])
    assert fit_to_cluster(load_space("quick"), can_bf16=True, has_gpus=False)[1] == []


def test_a_machine_says_whether_its_cpu_has_bfloat16(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.backends.mkldnn.is_available", lambda: False)
    assert not prepare_machine(str(tmp_path), [TINY], 0).bf16
    monkeypatch.setattr("torch.backends.mkldnn.is_available", lambda: True)
    for has in ({"avx512_bf16": True, "amx_bf16": False}, {"avx512_f": True, "avx512_bf16": False}):
        monkeypatch.setattr("torch.cpu.get_capabilities", lambda has=has: has)
        assert prepare_machine(str(tmp_path), [TINY], 0).bf16 == has["avx512_bf16"]


def test_a_fixed_precision_that_no_machine_supports_is_refused():
    words = (
        "precision.mode=16-mixed: no GPU here. The space has no other value for it: give one with precision.mode=VALUE."
    )
    with pytest.raises(UserError, match=f"^{re.escape(words)}$"):
        fit_to_cluster(load_space("quick", ["precision.mode=16-mixed"]), can_bf16=True, has_gpus=False)


def test_batch_size_auto_is_removed_on_cpus():
    space = load_space("quick", ["batch_size={choice: [auto, 32]}"])
    reduced, notes = fit_to_cluster(space, can_bf16=True, has_gpus=False)
    assert reduced.values_of("batch_size") == {32}
    assert "batch_size=auto (no GPU here)" in " ".join(notes)
    with pytest.raises(UserError, match="batch_size=auto: no GPU here"):
        fit_to_cluster(load_space("quick", ["batch_size=auto"]), can_bf16=True, has_gpus=False)


def test_more_devices_than_a_trial_gets_are_removed_and_reported():
    space = load_space("quick", ["data_parallel={devices: {choice: [1, 2, 4]}}"])
    reduced, notes = fit_to_cluster(space, can_bf16=True, has_gpus=False, devices=2)
    assert reduced.values_of("data_parallel.devices") == {1, 2}
    assert notes == [
        "Removed from the space: data_parallel.devices=4 (a trial gets 2 CPU; --cpus-per-trial=4 would allow it)."
    ]
    with pytest.raises(
        UserError, match=r"data_parallel.devices=2: a trial gets 1 GPU; --gpus-per-trial=2 would allow it"
    ):
        fit_to_cluster(load_space("quick", ["data_parallel={devices: 2}"]), can_bf16=True, has_gpus=True)


@pytest.mark.parametrize(("cpus", "gpus", "devices"), [(1, 0, 1), (0.5, 0, 1), (4, 0, 4), (8, 0.5, 1), (8, 2, 2)])
def test_the_devices_of_a_trial_are_its_gpus_or_else_its_cpus(cpus, gpus, devices):
    assert plan_demand([Node("a", "one", 16, 4)], cpus, gpus).devices == devices


def test_every_backbone_of_a_space_is_prepared():
    space = load_space(
        "quick", ["backbone={choice: [{name: resnet18, weights: none}, {name: test_resnet, weights: letters}]}"]
    )
    names = {recipe.backbone.name for recipe in inputs_of(space)}
    assert names == {"resnet18", "test_resnet"}


def test_every_image_size_is_prepared_with_every_backbone_and_policy():
    space = load_space(
        "quick",
        [
            "backbone={choice: [{name: test_resnet, weights: none}, {name: test_vit, weights: none}]}",
            "preprocessing={image_size: {choice: [32, 48, 64, auto]}}",
            "augmentation={choice: [{policy: none}, {policy: affine_colour, rotate: {uniform: [5, 30]}}, "
            "{policy: rand_augment, magnitude: {int_uniform: [1, 30]}}]}",
        ],
    )
    found = {
        (recipe.backbone.name, recipe.preprocessing.image_size, recipe.augmentation.policy)
        for recipe in inputs_of(space)
    }
    sizes, policies = (32, 48, 64, "auto"), ("none", "affine_colour", "rand_augment")
    baseline = {("resnet18", "auto", "none")}
    assert found - baseline == set(product(("test_resnet", "test_vit"), sizes, policies))


def test_an_image_size_that_a_backbone_does_not_support_is_reported_before_the_first_trial(tmp_path):
    space = load_space(
        "quick", ["backbone={name: test_vit, weights: none}", "preprocessing={image_size: {choice: [32, 50]}}"]
    )
    facts = prepare_machine(str(tmp_path), [recipe.model_dump() for recipe in inputs_of(space)], 0)
    assert "backbone.name=test_vit cannot classify images of 50×50" in facts.problem
    assert "Set another preprocessing.image_size" in facts.problem


def test_recipes_of_the_same_input_share_a_key():
    one = read_recipe({"epochs": 3})
    assert input_key(one) == input_key(Recipe())
    assert input_key(one) != input_key(read_recipe({"preprocessing": {"image_size": 64}}))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"backbone": {"name": "resnet81", "weights": "none"}}, r"backbone.name=resnet81: .*Did you mean"),
        ({"backbone": {"weights": "nowhere.pth"}}, r"backbone.weights=nowhere.pth: no such file"),
        ({"data": {"name": "image_folder", "root": "nowhere"}}, "data.root=nowhere: no such folder"),
        ({"data": {"name": "digits", "train_size": 5000}}, "data.train_size=5000"),
    ],
)
def test_an_error_on_a_machine_is_returned_as_one_sentence(tmp_path, values, words):
    recipe = read_recipe({"backbone": {"name": "test_resnet", "weights": "none"}, **values})
    answer = prepare_machine(str(tmp_path), [recipe.model_dump()], 0)
    with pytest.raises(UserError, match=words):
        raise UserError(answer.problem)


def test_a_storage_that_a_machine_cannot_write_is_named(tmp_path):
    assert "--storage=" in prepare_machine(str(tmp_path / "nowhere"), [], 0).problem


def test_a_machine_that_cannot_reach_the_place_of_the_copies_is_named_before_the_first_trial(tmp_path):
    (tmp_path / "file").touch()
    problem = prepare_machine(str(tmp_path), [], 0, f"file://{tmp_path}/file").problem
    assert f"/file: it cannot be written to from {os.uname().nodename} (" in problem
    assert prepare_machine(str(tmp_path / "new"), [TINY], 0, f"file://{tmp_path}/copies").problem is None


@pytest.mark.parametrize("cpus", [0.5, 1, 2, 3, 4, 16])
def test_threads_and_loader_workers_never_exceed_a_trials_cpus(cpus):
    for in_memory, on_gpu in product((True, False), repeat=2):
        threads, workers = split_cpus(cpus, in_memory, on_gpu)
        assert threads >= 1
        assert threads + workers == max(1, int(cpus))


def test_a_training_on_a_cpu_computes_longer_than_it_decodes():
    assert [split_cpus(cpus, in_memory=False) for cpus in (2, 4, 16)] == [(2, 0), (3, 1), (12, 4)]
    assert [split_cpus(cpus, in_memory=False, on_gpu=True) for cpus in (2, 16)] == [(1, 1), (8, 8)]


def test_the_start_of_ray_is_tried_three_times_and_then_reported_in_one_sentence(monkeypatch):
    slow = Exception("The current node timed out during startup. This could happen because of load.")
    answers = [slow, slow, None]

    def init(**arguments):
        answers.append(answer := answers.pop(0))
        if answer:
            raise answer

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    start_ray(None)
    assert answers == [slow, slow, None]
    answers[:] = [slow] * 3
    with pytest.raises(UserError, match=r"Ray did not start \(The current node timed out during startup\)\. Try again"):
        start_ray(None)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_the_start_of_ray_ends_it_at_once(monkeypatch, number):
    def init(**arguments):
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as Ray does, in effect
        os.kill(os.getpid(), number)
        threading.Event().wait(20)

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    kept = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        listen()
        with pytest.raises(Interrupted):
            start_ray(None)
    finally:
        for each, handler in kept.items():
            signal.signal(each, handler)


def test_workers_on_other_machines_get_the_cache_limit(monkeypatch):
    given = []
    monkeypatch.setattr(ray, "init", lambda **arguments: given.append(arguments))
    monkeypatch.setattr(os, "environ", {**os.environ, "TECHNIQUE_SEARCH_CACHE_MB": "77"})
    monkeypatch.setattr("search.runner.machines.ray_process._join", lambda address: [])
    start_ray("head:6379")
    assert given[0]["runtime_env"]["env_vars"]["TECHNIQUE_SEARCH_CACHE_MB"] == "77"


def test_the_variables_of_a_sweep_do_not_change_what_its_process_runs_later(monkeypatch):
    monkeypatch.setenv("TUNE_WARN_THRESHOLD_S", "7")
    monkeypatch.delenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", raising=False)
    complete_user()  # it sets variables for good where the system does not know the user
    before, during = dict(os.environ), {}
    monkeypatch.setattr(ray, "init", lambda **_: during.update(os.environ))
    start_ray(None)
    assert (during["TUNE_WARN_THRESHOLD_S"], during["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"]) == ("7", "1")
    assert dict(os.environ) == before


def test_no_call_of_ray_starts_or_joins_another_one():
    """Ray reads the variable when it is imported, so the sweep's modules must not import it before."""
    code = (
        "import sys, search.runner.sweep\n"
        "from search.runner.machines import ray_process\n"
        "assert 'ray' not in sys.modules\n"
        "ray_process._init_ray = lambda address: None\n"
        "ray_process.start_ray(None)\n"
        "import ray\n"
        "ray.remote(type('Actor', (), {})).remote()\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ENABLE_AUTO_CONNECT"}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert "Ray has not been started yet" in ended.stderr


def test_a_second_sweep_of_a_process_uses_the_ray_that_is_there(monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "init", Mock(side_effect=RuntimeError("Maybe you called ray.init twice by accident?")))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    start_ray(None)


@pytest.mark.parametrize(
    ("address", "hosts", "python"),
    [
        (None, [], "own"),
        ("head:6379", ["head"], None),
        ("127.0.0.1:6379", [socket.gethostname()], "raylet's"),
        ("127.0.0.1:6379", [socket.gethostname(), "other"], None),
    ],
)
def test_workers_of_this_machine_come_from_a_fork_server(monkeypatch, address, hosts, python):
    given = {}
    monkeypatch.setattr(ray, "init", lambda **arguments: given.update(arguments))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr("search.runner.machines.ray_process._join", lambda address: hosts)
    monkeypatch.setattr("search.runner.machines.ray_process.start_fork_server", lambda: "own")
    monkeypatch.setattr("search.runner.machines.ray_process.name_fork_server", lambda: "raylet's")
    start_ray(address)
    assert given["runtime_env"].get("py_executable") == python


def test_a_cluster_that_does_not_answer_where_ray_looks_for_it_is_refused_at_once(monkeypatch):
    """Ray replaces the loopback, on which a head node may listen alone, by the machine's other address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        head = f"127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setattr("ray._private.services.canonicalize_bootstrap_address_or_die", lambda address: head)
    monkeypatch.setattr("search.runner.machines.ray_process._list_hosts", lambda head: pytest.fail("it was waited for"))
    monkeypatch.setattr(ray, "init", lambda **_: pytest.fail("it was waited for"))
    with pytest.raises(
        UserError, match=rf"{head}: no Ray cluster answers there\. Ray looks there .* of --address=auto"
    ):
        start_ray("auto")


def test_a_head_node_is_silent_from_its_last_answer_on(monkeypatch):
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(ray_process, "time", clock)
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(gcs_address=address))
        silence = watch_servers("auto")
        clock.now = 5.0
        assert silence() == 0
    clock.now = 12.0
    assert silence() == 7
    clock.now = 12.5
    assert silence() == 7  # it is asked once a second
    clock.now = 40.0
    assert silence() == 35


@pytest.mark.parametrize(("address", "is_local"), [(None, True), ("head:6379", False)])
def test_a_ray_of_this_machine_listens_on_the_loopback_alone(monkeypatch, address, is_local):
    from ray._private.services import get_node_ip_address

    ips = []
    monkeypatch.setattr("ray._private.services.node_ip_address_from_perspective", lambda _: "192.0.2.7")
    monkeypatch.setattr(ray, "init", lambda **_: ips.append(get_node_ip_address()))
    monkeypatch.setattr("search.runner.machines.ray_process._join", lambda address: [])
    start_ray(address)
    assert ips == ["127.0.0.1" if is_local else "192.0.2.7"]
    assert get_node_ip_address() == "192.0.2.7", "another Ray of this process is as its caller wants it"


@pytest.mark.parametrize(("address", "cpus"), [(None, 3), ("head:6379", None)])
def test_a_ray_of_this_machine_has_the_cpus_that_this_process_may_use(monkeypatch, address, cpus):
    taken = []
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 2, 5})
    monkeypatch.setattr("training.process.resources._list_quotas", lambda: [inf])
    monkeypatch.setattr(ray, "init", lambda **settings: taken.append(settings.get("num_cpus")))
    monkeypatch.setattr("search.runner.machines.ray_process._join", lambda address: [])
    start_ray(address)
    assert taken == [cpus]
    assert this_machine().cpus == 3


def test_tune_copies_no_key_into_the_runtime_environment_of_its_workers(monkeypatch):
    from ray.tune.execution.class_cache import ENV_VARS_TO_PROPAGATE, _ActorClassCache

    secret = {name for name in ENV_VARS_TO_PROPAGATE if name.startswith("AWS_")}
    assert secret, "Ray copies none any more: remove what keeps them out"
    for name in (*ENV_VARS_TO_PROPAGATE, "HF_TOKEN", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.setenv(name, "pl4nted")
    with without_secrets():
        made = _ActorClassCache().get(type("Trainable", (), {}))
    variables = made._default_options["runtime_env"]["env_vars"]
    assert variables.keys() <= {*RAY_SETTINGS, "PL_DISABLE_FORK"}
    assert secret <= ENV_VARS_TO_PROPAGATE, "the next user of Tune in this process has them again"


@pytest.mark.cluster
def test_the_driver_does_not_wait_for_a_dead_machine(tmp_path, monkeypatch):
    from ray.exceptions import NodeDiedError, WorkerCrashedError

    start_ray(None)
    try:
        gone = Node("0f" * 28, "gone", 1, 0)
        dead, fact = prepare_cluster([TINY], tmp_path, [gone, *list_nodes()], 0)
        assert (dead.host, fact.problem) == ("gone", None)
        with pytest.raises(UserError, match="The task that prepares the machine died"):
            prepare_cluster([TINY], tmp_path, [gone], 0)
        for death in (NodeDiedError("its node died"), WorkerCrashedError()):
            monkeypatch.setattr(ray, "get", Mock(side_effect=[death, fact]))
            assert prepare_cluster([TINY], tmp_path, list_nodes() * 2, 0)[1] == fact
            monkeypatch.undo()
    finally:
        ray.shutdown()


@pytest.mark.parametrize(
    ("problems", "words"),
    [
        (["data.root=x: no such folder."] * 2, r"^data\.root=x: no such folder\.$"),
        (["two has a GPU that torch cannot use.", "other"], r"^No machine can run a trial\. two: two has a GPU that"),
    ],
)
def test_a_cluster_without_a_machine_for_trials_is_refused_in_one_sentence(problems, words, tmp_path, monkeypatch):
    monkeypatch.setattr(preparation, "start_preparing", lambda *_: problems.pop(0))
    monkeypatch.setattr(ray, "get", lambda problem: MachineFacts(problem=problem, host="two"))
    with pytest.raises(UserError, match=words):
        prepare_cluster([], tmp_path, LAPTOP * 2, 0)


def test_only_this_user_can_read_the_token_of_ray(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    token = tmp_path / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("token")
    token.chmod(0o644)
    with patch("ray.init"):
        start_ray(None)
    assert token.stat().st_mode & 0o777 == 0o600
    token.unlink()
    token.parent.rmdir()
    with patch("ray.init", side_effect=lambda **options: token.write_text("new")):
        start_ray(None)
    assert token.stat().st_mode & 0o777 == 0o600
    assert token.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.cluster
def test_a_cluster_with_a_token_is_joined_with_it_and_refused_without(tmp_path, monkeypatch):
    """Ray reads the token and the mode when it is imported, so each attempt is a process of its own."""
    home = tmp_path / "home"
    (home / ".ray").mkdir(parents=True)
    (home / ".ray" / "auth_token").write_text("a" * 64)
    port = find_free_port(21_000)
    unset = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    start = [str(Path(sys.executable).with_name("ray")), "start", "--head", f"--port={port}", "--num-cpus=1", "--block"]
    start += ["--include-dashboard=false"]
    code = (
        "import ray\n"
        "from search.runner.machines.cluster import list_nodes\n"
        "from search.runner.machines.ray_process import start_ray\n"
        "from training.errors import UserError\n"
        "try:\n"
        f"    start_ray('127.0.0.1:{port}')\n"
        "    counter = ray.remote(type('Counter', (), {'count': lambda self: len(list_nodes())})).remote()\n"
        "    print(ray.get(counter.count.remote()), 'node')\n"
        "except UserError as error:\n"
        "    print(error)\n"
    )

    def join(home, **more):
        command = [sys.executable, "-c", code]
        return subprocess.run(
            command, env={**environment, "HOME": str(home), **more}, capture_output=True, text=True, timeout=300
        ).stdout

    head = subprocess.Popen(start, env={**environment, "HOME": str(home)}, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while (joined := join(home)) != "1 node\n" and time.monotonic() < deadline:
            time.sleep(1)
        assert joined == "1 node\n"
        refused = f"--address=127.0.0.1:{port}: authentication failed, because the cluster needs a token and "
        assert join(tmp_path).startswith(f"{refused}this machine has none. Copy the head node's")
        assert join(tmp_path, RAY_AUTH_TOKEN="b" * 64).startswith(f"{refused}this machine has another one.")
    finally:
        for process in [*psutil.Process(head.pid).children(recursive=True), head]:
            process.kill()
        head.wait()
