"""Where the first bottleneck appears at 10, 100 and 1,000 nodes: a simulation that first reproduces measured curves.

    ludus bench example_session_state_mgmt --in-flight 1k,4k,16k --workers 2 --delay 0.5..1.5 \\
        --output benchmarks/measured_scale.json
    python benchmarks/simulate_scale.py benchmarks/measured_scale.json --docs docs/scale.md

The model is a closed queueing network. A rollout is `calls` model calls with a piece of CPU time before, between and
after them; the CPU pieces wait for their worker (one core, first come first served), the model only delays. At the end
the collecting process (one core too) records the rollout and hands out the next. `in_flight` rollouts go round at a
time. A large cluster is simulated as a k-th of it whose collecting process is k times slower, which keeps every load.
All costs are read from the file; what is assumed of the nodes are options.
"""

import argparse
import heapq
import json
import math
import random
import re
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from ludus_bench.delays import Delay

#: A part with more load than this is the bottleneck.
FULL = 0.85
MOST_SIMULATED = 20_000
BEGIN, END = "<!-- simulated: begin -->\n", "<!-- simulated: end -->\n"


@dataclass(frozen=True)
class Costs:
    """What a rollout costs. CPU is in seconds on a core of its own."""

    worker_cpu_s: float
    collector_cpu_s: float
    calls: int
    delay: Callable[[], float]
    memory_bytes: float = 0.0
    journal_bytes: float = 0.0
    http_bytes: float = 0.0

    def slowed(self, worker_share: float, collector_share: float) -> "Costs":
        """The costs where processes get only a share of the time in which they could run."""
        worker, collector = self.worker_cpu_s / worker_share, self.collector_cpu_s / collector_share
        return replace(self, worker_cpu_s=worker, collector_cpu_s=collector)


class Simulated(NamedTuple):
    """Rollouts a second, the time of a rollout, and the load of each part from 0 to 1."""

    rate: float
    mean_s: float
    p50_s: float
    p99_s: float
    workers: float
    collector: float


def simulate(costs: Costs, workers: int, in_flight: int, rollouts: int, shrink: int = 1) -> Simulated:
    """Play rollouts from the first start to the last record. `shrink` simulates a part of a cluster, see above."""
    workers, in_flight, rollouts = (max(1, round(each / shrink)) for each in (workers, in_flight, rollouts))
    in_flight, pieces = min(in_flight, rollouts), costs.calls + 1
    piece, record = costs.worker_cpu_s / pieces, costs.collector_cpu_s * shrink
    free, collector_free, worker_busy, order = [0.0] * workers, 0.0, 0.0, in_flight
    begun, times = in_flight, list[float]()
    # (when the next piece of CPU is asked for, a number that keeps the order, worker, pieces done, start)
    waiting = [(0.0, number, number % workers, 0, 0.0) for number in range(in_flight)]
    while waiting:
        now, _, worker, done, start = heapq.heappop(waiting)
        order += 1
        if done == pieces:  # recorded in the order in which rollouts end
            collector_free = max(now, collector_free) + record
            if begun < rollouts:
                begun += 1
                heapq.heappush(waiting, (collector_free, order, worker, 0, collector_free))
            continue
        ended = max(now, free[worker]) + piece
        if done == 0:  # the clock of a rollout starts when its worker first runs it
            start = ended - piece
        free[worker], worker_busy = ended, worker_busy + piece
        if done + 1 == pieces:
            times.append(ended - start)
            heapq.heappush(waiting, (ended, order, worker, pieces, start))
        else:
            heapq.heappush(waiting, (ended + costs.delay(), order, worker, done + 1, start))
    wall = max(collector_free, *free)
    times.sort()
    return Simulated(
        shrink * rollouts / wall,
        math.fsum(times) / rollouts,
        times[rollouts // 2],
        times[min(rollouts - 1, math.ceil(0.99 * rollouts))],
        worker_busy / workers / wall,
        record * rollouts / wall,
    )


def costs_of(points: list[dict[str, Any]], spec: str, seed: int) -> Costs:
    """The costs of measured points, weighted by their rollouts. A late answer of the stub counts as its delay."""
    total = sum(point["rollouts"] for point in points)

    def mean(value: Callable[[dict[str, Any]], float]) -> float:
        return sum(value(point) * point["rollouts"] for point in points) / total

    calls = max(1, round(mean(lambda point: point["calls_per_rollout"])))
    late, delay, drawn = mean(lambda point: point["stub_late_s"]) / calls, Delay.parse(spec), random.Random(seed)
    return Costs(
        mean(lambda point: point["cpu_s"]["workers"]),
        mean(lambda point: point["cpu_s"]["collector"]),
        calls,
        lambda: delay.draw(drawn) + late,
        max(point["memory_bytes"] for point in points),
        mean(lambda point: point["journal_bytes"]),
        mean(lambda point: point["http_bytes"]),
    )


def table(heads: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    return "".join(f"| {' | '.join(row)} |\n" for row in (heads, ["---"] * len(heads), *rows))


def parts(costs: Costs, points: list[dict[str, Any]], without_http: Costs | None) -> str:
    """What each part costs per rollout."""
    stub = sum(point["cpu_s"]["stub"] * point["rollouts"] for point in points) / sum(p["rollouts"] for p in points)
    rows = [
        ["worker: tools, verdict, HTTP, encoding", f"{costs.worker_cpu_s * 1000:.3f} ms of CPU"],
        ["collecting process: hand out, journal, metrics", f"{costs.collector_cpu_s * 1000:.3f} ms of CPU"],
        ["stub model (yours is a GPU)", f"{stub * 1000:.3f} ms of CPU"],
        ["memory while in flight", f"{costs.memory_bytes / 1000:.1f} KB"],
        ["a line of the journal", f"{costs.journal_bytes / 1000:.2f} KB"],
        [f"bodies of {costs.calls} model calls, both ways", f"{costs.http_bytes / 1000:.2f} KB"],
    ]
    if without_http is not None:
        more = (costs.worker_cpu_s - without_http.worker_cpu_s) * 1000
        rows.insert(1, ["of that, HTTP to the model (measured without it)", f"{more:.3f} ms of CPU"])
    return table(["part, for a rollout", "cost"], rows)


def reproduced(points: list[dict[str, Any]], spec: str) -> tuple[str, float, float]:
    """The measured points beside simulated ones, and the largest errors of the rate and of the mean time.

    A point is simulated with its own CPU costs, and once more with those of the other points only.
    """
    rows, of_rate, of_time = [], 0.0, 0.0
    for point in points:
        own, others = costs_of([point], spec, 0), [other for other in points if other is not point]
        found = as_measured(point, own)
        guess = as_measured(point, replace(costs_of(others, spec, 0), delay=own.delay)) if others else None
        rate, mean = point["rollouts_per_second"], point["rollout_s"]["mean"]
        errors = found.rate / rate - 1, found.mean_s / mean - 1
        of_rate, of_time = max(of_rate, abs(errors[0])), max(of_time, abs(errors[1]))
        row = [f"{point['in_flight']:,}", f"{rate:,.0f}", f"{found.rate:,.0f}", f"{errors[0]:+.0%}"]
        row.append(f"{guess.rate / rate - 1:+.0%}" if guess is not None else "-")
        rows.append([*row, f"{mean:.2f} s", f"{found.mean_s:.2f} s", f"{errors[1]:+.0%}"])
    heads = ["in flight", "rollouts/s measured", "simulated", "error", "error with the other points' costs"]
    return table([*heads, "mean time measured", "simulated", "error"], rows), of_rate, of_time


def as_measured(point: dict[str, Any], costs: Costs) -> Simulated:
    """Simulate what was measured, with the share of the cores that the processes got then."""
    shares = point["cpu_share"]
    slowed = costs.slowed(shares["workers"] or 1.0, shares["collector"] or 1.0)
    return simulate(slowed, point["workers"], point["in_flight"], point["rollouts"])


class Cluster(NamedTuple):
    """What is assumed of a cluster. The collecting process has one network link and one disk."""

    cores: int
    disk: float
    link: float
    files: int
    memory: float


def scaled(costs: Costs, cluster: Cluster, delay: str, nodes: int, in_flight: int) -> list[str]:
    """One line: what a cluster does with so many rollouts in flight, and its first bottleneck."""
    workers = nodes * cluster.cores
    shrink = max(1, min(workers, -(-in_flight // MOST_SIMULATED)))
    while workers % shrink:
        shrink -= 1
    drawn, parsed = random.Random(1), Delay.parse(delay)
    costs = replace(costs, delay=lambda: parsed.draw(drawn))
    found = simulate(costs, workers, in_flight, 3 * in_flight, shrink)
    loads = {
        "collecting process": found.collector,
        "workers": found.workers,
        "disk of the journal": found.rate * costs.journal_bytes / cluster.disk,
        "network of the collecting process": found.rate * costs.journal_bytes * 2 / cluster.link,
        "open files of a worker": in_flight / workers / cluster.files,
        "memory of a node": in_flight / nodes * costs.memory_bytes / cluster.memory,
    }
    first = max(loads, key=lambda name: loads[name])
    shards = math.ceil(in_flight / found.mean_s * costs.collector_cpu_s / 0.7) if found.collector >= FULL else 1
    return [
        f"{nodes:,}",
        f"{in_flight:,}",
        f"{delay} s",
        f"{found.rate:,.0f}",
        f"{found.mean_s:.2f} s",
        f"{found.workers:.1%}",
        f"{found.collector:.0%}",
        f"{loads['memory of a node'] * cluster.memory / 1e9:.2f} GB",
        f"{found.rate * costs.calls:,.0f}",
        f"{first} ({loads[first]:.0%})" if loads[first] >= FULL else "none: the model's delay",
        f"{shards:,}",
    ]


def gpus(costs: Costs, cluster: Cluster) -> str:
    """What runs out first on 10,000 GPUs, eight a node, for rollouts of several lengths."""
    nodes, in_flight, rows = 1250, 10_000 * 64, []
    for calls, seconds in ((2, "0.5..1.5"), (2, "30"), (50, "10"), (50, "30")):
        times = calls / costs.calls
        longer = replace(
            costs, calls=calls, worker_cpu_s=costs.worker_cpu_s * times, journal_bytes=costs.journal_bytes * times
        )
        line = scaled(longer, cluster, seconds, nodes, in_flight)
        rows.append([f"{calls} calls of {seconds} s", *(line[place] for place in (3, 5, 6, 8, 9, 10))])
    heads = [
        "a rollout",
        "rollouts/s",
        "workers' load",
        "collector's load",
        "model calls/s",
        "first bottleneck",
        "shards",
    ]
    return table(heads, rows)


def report(found: dict[str, Any], without_http: dict[str, Any] | None, cluster: Cluster, long_delay: str) -> str:
    """Everything, as Markdown."""
    points, spec = found["points"], found["delay"]["spec"]
    if not points or min(point["workers"] for point in points) < 2:
        sys.exit("The measured points need worker processes, to tell their cost from the collector's: --workers 2")
    costs = costs_of(points, spec, 0)
    bare = costs_of(without_http["points"], without_http["delay"]["spec"], 0) if without_http is not None else None
    curve, of_rate, of_time = reproduced(points, spec)
    sizes = [(10, 10_000), (100, 100_000), (1000, 1_000_000), (10, 1_000_000), (100, 1_000_000)]
    heads = ["nodes", "in flight", "delay of a call", "rollouts/s", "mean time", "workers' load", "collector's load"]
    heads += ["memory a node", "model calls/s", "first bottleneck", "shards"]
    lines = table(heads, [scaled(costs, cluster, delay, *size) for delay in (spec, long_delay) for size in sizes])
    machine = f"{found['machine']['cores']} cores, load average {found['machine']['load']}"
    return (
        f"Measured {found['taken'][:10]} with {found['environment']}, model delay {spec} s, {machine}. Simulated "
        f"{time.strftime('%Y-%m-%d')} by `python benchmarks/simulate_scale.py {' '.join(sys.argv[1:])}`.\n"
        "The figures were taken on a busy 2-core machine: take your own before you buy anything.\n\n"
        f"What each part costs:\n\n{parts(costs, points, bare)}\n"
        f"The measured curve, reproduced. Largest error: {of_rate:.0%} of the rate, {of_time:.0%} of the mean time. "
        "CPU costs, and the share of the cores that the processes got, are read from the measured point; rate and "
        "times are computed. One column takes the CPU costs from the other points only.\n\n"
        f"{curve}\n"
        f"Clusters, with {cluster.cores} workers a node, each with a core of its own, one collecting process with a "
        f"disk of {cluster.disk / 1e6:,.0f} MB/s and a link of {cluster.link / 1e6:,.0f} MB/s, {cluster.files:,} open "
        f"files a worker and {cluster.memory / 1e9:,.0f} GB a node:\n\n{lines}\n"
        "10,000 GPUs, which are 1,250 such nodes of eight, with 64 rollouts in flight on each. The costs of a worker "
        "and of a line of the journal grow with the calls; what the collecting process does for a rollout does not, "
        f"except for turns that it saves, which are left out:\n\n{gpus(costs, cluster)}"
    )


def wrapped(text: str) -> str:
    """The text with lines of at most 120 columns; tables are left alone."""
    blocks = (each if each.startswith("|") else textwrap.fill(each, 120) for each in text.split("\n\n"))
    return "\n\n".join(block.strip("\n") for block in blocks) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", type=Path, help="the JSON of ludus bench --workers 2")
    parser.add_argument("--without-http", type=Path, help="the JSON of ludus bench --workers 2 --no-http")
    parser.add_argument("--docs", type=Path, help="replace what stands between the marks in this file")
    parser.add_argument("--cores", type=int, default=16, help="workers of a node, one a core")
    parser.add_argument("--disk-mb", type=float, default=500, help="MB/s that the journal's disk writes")
    parser.add_argument("--link-mb", type=float, default=1250, help="MB/s of the collecting process's link")
    parser.add_argument("--files", type=int, default=20_000, help="open files of a worker")
    parser.add_argument("--memory-gb", type=float, default=64, help="memory of a node")
    parser.add_argument("--delay", default="30", help="seconds of a model call, besides the measured delay")
    given = parser.parse_args()
    cluster = Cluster(given.cores, given.disk_mb * 1e6, given.link_mb * 1e6, given.files, given.memory_gb * 1e9)
    without = json.loads(given.without_http.read_text()) if given.without_http is not None else None
    text = wrapped(report(json.loads(given.measured.read_text()), without, cluster, given.delay))
    print(text)
    if given.docs is not None:
        page = given.docs.read_text()
        marked = re.compile(f"{BEGIN}.*{END}", re.DOTALL)
        if not marked.search(page):
            sys.exit(f"{given.docs} has no lines {BEGIN.strip()} and {END.strip()}")
        given.docs.write_text(marked.sub(lambda _: f"{BEGIN}\n{text}\n{END}", page))


if __name__ == "__main__":
    main()
