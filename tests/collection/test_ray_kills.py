"""kill -9 on a Ray cluster at any moment: the driver, a worker, a node."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from kills import MOMENTS, Killed
from ray_runs import kill_raylet, shared_cluster, stop_cluster

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """The cluster of this file: a head with one CPU and a node with one."""
    with shared_cluster() as found:
        found.add_node(num_cpus=1)
        yield found
    stop_cluster()


@pytest.fixture
def on_ray(cluster: Any) -> tuple[str, ...]:
    """The options of a collection on the cluster."""
    return "--ray", cluster.address, "--workers", "2"


def test_a_driver_killed_at_many_moments_loses_at_most_a_turn_each_time(tmp_path, on_ray):
    Killed(tmp_path / "sums", 24, *on_ray).kill_the_driver(MOMENTS, 420 // MOMENTS)


def test_workers_killed_at_many_moments_lose_at_most_a_turn_each_time(tmp_path, on_ray):
    chosen, killed = random.Random(7), Killed(tmp_path / "sums", 10 * MOMENTS, *on_ray)
    # Long enough for a turn to arrive in between: a rollout with which three workers die at the same turn fails.
    killed.kill_workers_after([chosen.randrange(40, 80) for _ in range(MOMENTS)])
    killed.check()


def test_nodes_killed_at_many_moments_lose_at_most_a_turn_each_time(tmp_path, cluster, on_ray):
    chosen, killed = random.Random(7), Killed(tmp_path / "sums", 10 * MOMENTS, *on_ray)

    def kill_the_other_node() -> None:
        (node,) = cluster.worker_nodes
        kill_raylet(node)
        cluster.remove_node(node, allow_graceful=False)
        cluster.add_node(num_cpus=1)

    killed.kill_each_time([chosen.randrange(40, 80) for _ in range(MOMENTS)], kill_the_other_node)
    killed.check()
    assert json.loads((killed.folder / "out" / "metrics.json").read_text())["workers"]["died"] > 0
