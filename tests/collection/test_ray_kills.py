"""kill -9 on a Ray cluster at any moment: the driver, a worker, a node."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kills import MOMENTS, TURNS, Killed
from ray_runs import kill_raylet, shared_cluster, stop_cluster

#: For how long the longest test kills: LUDUS_KILL_SECONDS=620 is the run of docs/about/performance.md.
SECONDS = float(os.environ.get("LUDUS_KILL_SECONDS", "30"))
#: Rollouts that four workers play in a second, at most.
_A_SECOND = 16

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


def test_four_nodes_that_die_at_random_for_minutes_lose_and_double_nothing(tmp_path, cluster, capsys):
    while len(cluster.worker_nodes) < 3:
        cluster.add_node(num_cpus=1)
    count, chosen = int(SECONDS * _A_SECOND), random.Random(11)
    killed = Killed(tmp_path / "sums", count, "--ray", cluster.address, "--workers", "4", "--concurrency", "12")
    process, workers, nodes = killed.start(), 0, 0
    killed.wait_for_calls(process, 40)
    began = time.monotonic()
    while time.monotonic() < began + SECONDS and process.poll() is None:
        if workers <= nodes:
            workers += killed.kill_the_last_worker()
        else:
            node = chosen.choice(sorted(cluster.worker_nodes, key=lambda node: node.node_id))
            kill_raylet(node)
            cluster.remove_node(node, allow_graceful=False)
            cluster.add_node(num_cpus=1)
            nodes += 1
        time.sleep(chosen.uniform(2, 10))
    assert process.wait() == 0, (killed.folder / "stderr.log").read_text()
    killed.check()
    repeated, seconds = len(killed.asked) - count * TURNS, time.monotonic() - began
    died = json.loads((killed.folder / "out" / "metrics.json").read_text())["workers"]["died"]
    with capsys.disabled():
        print(f"\n{count} rollouts in {seconds:.0f} s; killed: {workers} workers, {nodes} nodes; {died} workers died")
        print(f"{repeated} of {count * TURNS} model calls were made again")
    assert died >= workers > 0
