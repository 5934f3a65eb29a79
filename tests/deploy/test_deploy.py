"""The files in deploy/ are valid as far as a machine without the services can check them, and so are their commands."""

import inspect
import json
import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import typer.main
from check_jsonschema.builtin_schemas import get_builtin_schema
from ruamel.yaml import YAML

from search.cli.main import app

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = "1.34"
SWEEPS = sorted(path for path in DEPLOY.rglob("*") if path.is_file() and "sweep run" in path.read_text())


def read(name: str) -> list:
    return list(YAML(typ="safe").load_all((DEPLOY / name).read_text()))


def find_commands(text: str) -> list[list[str]]:
    """The words of each `sweep ...` command, in files where it may go over several lines or be in a comment."""
    text = re.sub(r"\\\n\s*#?\s*", " ", text)
    folded = re.sub(r"entrypoint: >-\n((?: {4}.*\n)+)", lambda found: " ".join(found[1].split()) + "\n", text)
    found = re.findall(r"\bsweep (?:run|show|stop|report|list|export) [^\n&]*", folded)
    return [shlex.split(line.split(" || ")[0])[1:] for line in found]


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.name)
def test_every_command_is_one_of_ours_with_its_options(path):
    commands = find_commands(path.read_text())
    assert commands
    for name, *arguments in commands:
        words = [word for word in arguments if word != "$@"] + (["quick"] if "$@" in arguments else [])
        typer.main.get_command(app).commands[name].make_context(name, words)


def test_a_sweep_that_is_started_again_continues():
    commands = [words for path in SWEEPS for words in find_commands(path.read_text()) if words[0] == "run"]
    named = [words for words in commands if "--name" in words]
    assert len(named) == 5
    assert [words for words in named if "--or-resume" not in words] == []


def test_rays_launcher_accepts_its_file():
    from ray.autoscaler._private.util import prepare_config, validate_config

    [config] = read("cloud/aws.yaml")
    prepared = prepare_config(config)
    validate_config(prepared | {"cluster_synced_files": []})  # Ray's own schema; `ray up` adds the field
    assert prepared["available_node_types"]["spot_gpu"]["max_workers"] == config["max_workers"]


def test_compose_accepts_its_file():
    [config] = read("docker-compose.yaml")
    jsonschema.validate(config, get_builtin_schema("vendor.compose-spec"))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(config | {"servces": {}}, get_builtin_schema("vendor.compose-spec"))


# The fields of ray.io/v1 in KubeRay 1.5 (ray-operator/apis/ray/v1), less those that pods and clusters of ours never need.
RAY_JOB = """activeDeadlineSeconds backoffLimit rayClusterSpec submitterPodTemplate metadata submitterConfig entrypoint
    runtimeEnvYAML jobId submissionMode entrypointResources entrypointNumCpus entrypointNumGpus ttlSecondsAfterFinished
    shutdownAfterJobFinishes suspend"""
RAY_CLUSTER = """authOptions headGroupSpec workerGroupSpecs rayVersion enableInTreeAutoscaling autoscalerOptions
    headServiceAnnotations gcsFaultToleranceOptions suspend"""
AUTOSCALER = "resources image imagePullPolicy env envFrom volumeMounts securityContext idleTimeoutSeconds upscalingMode"
HEAD = "serviceType headService enableIngress rayStartParams template"
WORKERS = "groupName replicas minReplicas maxReplicas numOfHosts rayStartParams template"


def test_kubernetes_and_kuberay_accept_their_file():
    claim, job = read("kuberay/rayjob.yaml")
    spec = job["spec"]
    cluster = spec["rayClusterSpec"]
    head, [workers] = cluster["headGroupSpec"], cluster["workerGroupSpecs"]
    for fields, known in (
        (spec, RAY_JOB),
        (cluster, RAY_CLUSTER),
        (cluster["autoscalerOptions"], AUTOSCALER),
        (head, HEAD),
        (workers, WORKERS),
    ):
        assert set(fields) <= set(known.split())
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, **group["template"]}
        for group in (head, workers)
    ]
    for document in (claim, *pods):
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(pods[0] | {"spec": pods[0]["spec"] | {"volume": []}}, KUBERNETES, strict=True)
    assert f"ray=={cluster['rayVersion']} " in (ROOT / "requirements.lock").read_text()


def test_volumes_belong_to_the_user_of_the_image():
    image = (DEPLOY / "Dockerfile").read_text()
    user = int(re.search(r"useradd .*--uid (\d+)", image)[1])
    folders = re.search(r"install --directory --owner ray .*? (/.*)$", image, re.MULTILINE)[1].split()
    assert re.search(r"^WORKDIR (\S+)\nCMD", image, re.MULTILINE)[1] in folders
    [compose], [_, job], [aws] = read("docker-compose.yaml"), read("kuberay/rayjob.yaml"), read("cloud/aws.yaml")
    [mounted] = [volume.split(":")[1] for volume in compose["x-program"]["volumes"] if volume.startswith("sweeps:")]
    assert mounted in folders
    cluster = job["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        assert group["template"]["spec"]["securityContext"] == {"fsGroup": user}
    assert f"sudo chown {user} /shared" in aws["initialization_commands"]


def test_the_image_has_the_programs_that_others_call_in_it():
    from ray.autoscaler._private.command_runner import DockerCommandRunner

    installed = re.search(r"--no-install-recommends (.*?) &&", (DEPLOY / "Dockerfile").read_text())[1].split()
    assert "rsync -e '{} exec -i'" in inspect.getsource(DockerCommandRunner), "Ray's launcher needs it no more"
    assert {"rsync", "wget"} <= set(installed)


def test_login_shells_find_the_programs_of_the_image(tmp_path):
    """Ray's launcher and KubeRay's autoscaler use them; /etc/profile sets PATH anew."""
    image = (DEPLOY / "Dockerfile").read_text()
    folder = re.search(r"^ENV PATH=(.*):\$PATH$", image, re.MULTILINE)[1]
    (tmp_path / "profile").write_text(re.search(r"^RUN echo '(.*)' > /etc/profile.d/", image, re.MULTILINE)[1])
    shell = subprocess.run(
        ["bash", "-c", f". {tmp_path}/profile; echo $PATH"], env={"PATH": "/usr/bin:/bin"}, capture_output=True
    )
    assert shell.stdout.decode().strip() == f"{folder}:/usr/bin:/bin"


def test_the_image_gets_every_file_that_it_copies_and_nothing_else():
    text = (DEPLOY / "Dockerfile").read_text()
    copied = {word for line in re.findall(r"^COPY ((?!--).*) \S+$", text, re.MULTILINE) for word in line.split()}
    assert [name for name in copied if not (ROOT / name).exists()] == []
    allowed = re.findall(r"^!(.+)$", (DEPLOY / "Dockerfile.dockerignore").read_text(), re.MULTILINE)
    assert set(allowed) == copied
    packages = re.search(r"packages = (\[.*\])", (ROOT / "pyproject.toml").read_text())
    assert set(json.loads(packages[1])) <= copied


def test_the_services_of_compose_fit_each_other():
    [config] = read("docker-compose.yaml")
    services = config["services"]
    assert set(services) == {"postgres", "s3", "mlflow", "head", "worker"}
    for service in services.values():
        assert set(service.get("depends_on", [])) <= set(services)
        named = [volume for volume in service.get("volumes", []) if re.match(r"\w+:", volume)]
        assert {volume.split(":")[0] for volume in named} <= set(config["volumes"])
    assert services["mlflow"]["environment"]["MLFLOW_S3_ENDPOINT_URL"] == "http://s3:8333"
    assert services["worker"]["environment"]["MLFLOW_TRACKING_URI"] == "http://mlflow:5000"
    assert all(port.startswith("127.0.0.1:") for service in services.values() for port in service.get("ports", []))


def test_every_image_has_a_version_and_ours_has_that_of_the_program():
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
    pages = [*DEPLOY.rglob("*"), *(ROOT / "docs").glob("*.md")]
    text = "\n".join(path.read_text() for path in pages if path.is_file())
    assert set(re.findall(r"(?<=[ :])technique-search:([\w.]+)", text)) == {version}
    images = re.findall(r"^\s*(?:- )?image(?:_id)?: (\S+)$", text, re.MULTILINE)
    assert {re.split("[:/]", image)[-2] for image in images} == {"postgres", "seaweedfs", "technique-search"}
    assert [image for image in images if not re.search(r":\d+(\.\d+)+$", image)] == []


def test_mlflow_of_compose_answers_its_own_names_alone_and_has_no_password_in_its_arguments():
    from mlflow.server.security_utils import is_allowed_host_header

    [config] = read("docker-compose.yaml")
    mlflow = config["services"]["mlflow"]
    hosts = re.search(r"--allowed-hosts (\S+)", mlflow["command"][-1])[1].split(",")
    assert [
        host for host in ("mlflow", "localhost", "127.0.0.1") if not is_allowed_host_header(hosts, f"{host}:5000")
    ] == []
    assert not is_allowed_host_header(hosts, "evil.example.org")
    assert "PASSWORD" not in mlflow["command"][-1]
    assert "$POSTGRES_PASSWORD" not in str(config["services"]["postgres"].get("command"))
    assert mlflow["environment"]["MLFLOW_BACKEND_STORE_URI"].startswith("postgresql://mlflow:${POSTGRES_PASSWORD:?")


def test_every_cluster_asks_for_a_token():
    [compose], [_, job], [aws] = read("docker-compose.yaml"), read("kuberay/rayjob.yaml"), read("cloud/aws.yaml")
    for name in ("head", "worker"):
        environment = compose["services"][name]["environment"]
        assert environment["RAY_AUTH_MODE"] == "token"
        assert environment["RAY_AUTH_TOKEN"].startswith("${RAY_TOKEN:?"), "compose refuses to start without one"
    assert job["spec"]["rayClusterSpec"]["authOptions"] == {"mode": "token"}
    assert "~/.ray/auth_token" in aws["file_mounts"]
    assert "ray get-auth-token --generate" in (DEPLOY / "slurm/sweep.sbatch").read_text()
    assert not [path for path in DEPLOY.rglob("*") if path.is_file() and "disabled" in path.read_text()]


def test_the_pods_of_kuberay_share_the_volume_and_the_image():
    claim, job = read("kuberay/rayjob.yaml")
    spec = job["spec"]["rayClusterSpec"]
    pods = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    for pod in (group["template"]["spec"] for group in pods):
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert volumes["shared"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        [container] = pod["containers"]
        assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
        assert container["image"] == pods[0]["template"]["spec"]["containers"][0]["image"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert "--storage /shared" in job["spec"]["entrypoint"]


def test_skypilot_mounts_the_folder_that_the_sweep_uses():
    [task] = read("cloud/skypilot.yaml")
    assert "--storage /shared/" in task["run"]
    assert "/shared" in task["file_mounts"]


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Stand-ins for Slurm's and our programs. Each writes its call into a log; a sweep runs until it is stopped."""
    programs, log = tmp_path / "bin", tmp_path / "calls"
    programs.mkdir()
    scripts = {
        "srun": "exec sleep 0.1",
        "scontrol": "",
        "ray": "",
        "sweep": 'if [ "$1" = run ]; then while [ ! -e stopped ]; do sleep 0.05; done; else touch stopped; fi',
    }
    for name, script in scripts.items():
        (programs / name).write_text(f'#!/bin/bash\necho "{name} $*" >> {log}\n{script}\n')
        (programs / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "SWEEP_PROGRAMS": str(programs),
        "SWEEP_STORAGE": "/shared/sweeps",
        "SLURM_JOB_ID": "12345",
        "SLURM_JOB_NUM_NODES": "3",
        "SLURM_SUBMIT_DIR": str(tmp_path),
    }
    script = DEPLOY / "slurm" / "sweep.sbatch"

    def start(*arguments: str) -> subprocess.Popen:
        return subprocess.Popen(["bash", script, *arguments], cwd=tmp_path, env=environment, stderr=subprocess.PIPE)

    start.log, start.environment = log, environment
    return start


def wait_for_call(log: Path, words: str) -> None:
    deadline = time.monotonic() + 60
    while not (log.exists() and words in log.read_text()):
        assert time.monotonic() < deadline, log.read_text() if log.exists() else "no call"
        time.sleep(0.02)


def test_slurm_starts_a_head_and_workers_and_queues_the_job_again_before_its_time_limit(slurm):
    job = slurm("photos", "card", "data={name: image_folder, root: /shared/photos}")
    wait_for_call(slurm.log, "sweep run")
    calls = slurm.log.read_text()
    assert "ray get-auth-token --generate" in calls
    assert "--nodes=2 --ntasks=2" in calls, "the other two nodes are workers"
    assert re.search(
        r"sweep run card data=.* --name photos --storage /shared/sweeps --or-resume --address \S+:22345", calls
    )
    job.send_signal(signal.SIGUSR1)
    assert job.wait(60) == 0
    calls = slurm.log.read_text()
    assert calls.index("sweep stop photos --storage /shared/sweeps") < calls.index("scontrol requeue 12345")


def test_slurm_without_a_storage_folder_says_what_is_missing(slurm):
    del slurm.environment["SWEEP_STORAGE"]
    job = slurm("photos", "card")
    assert job.wait(60) != 0
    assert b"SWEEP_STORAGE=/shared/sweeps" in job.stderr.read()
