"""The CPUs of this process, also in a container with a quota."""

from __future__ import annotations

import os

import pytest

from training.process import resources
from training.process.resources import _list_quotas, count_cpus

V2, V1 = "0::/\n", "4:memory:/\n3:cpu,cpuacct:/docker/7b\n0::/\n"


@pytest.mark.parametrize(
    ("groups", "files", "quotas"),
    [
        (V2, {"cpu.max": "150000 100000"}, [1.5]),
        (V2, {"cpu.max": "max 100000"}, []),
        (V2, {"cpu.max": ""}, []),
        (V2, {"cpu.max": "100 0"}, []),
        (V2, {}, []),
        ("0::/a/b\n", {"a/cpu.max": "200000 100000", "a/b/cpu.max": "max 100000"}, [2.0]),
        ("0::/../../outside\n", {"cpu.max": "50000 100000"}, [0.5]),
        (V1, {"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, [4.0]),
        (V1, {"cpu/docker/7b/cpu.cfs_quota_us": "-1", "cpu/docker/7b/cpu.cfs_period_us": "100000"}, []),
        ("", {}, []),
        ("nonsense\n", {}, []),
    ],
)
def test_the_quotas_of_control_groups_are_read(groups, files, quotas, tmp_path):
    (tmp_path / "groups").write_text(groups)
    for name, text in files.items():
        file = tmp_path / "root" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    assert sorted(_list_quotas(tmp_path / "groups", tmp_path / "root"))[:-1] == quotas


def test_a_quota_bounds_the_cpus_and_leaves_one(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    counts = []
    for quota in (2.5, 0.1, 100.0, float("inf")):
        monkeypatch.setattr(resources, "_list_quotas", lambda quota=quota: [quota])
        counts.append(count_cpus())
    assert counts == [2, 1, 64, 64]
