"""What a server written for NeMo Gym costs on Ludus, against the same environment as a class of ours.

python benchmarks/hosted_servers.py                                  # every server in every way, about ten minutes
python benchmarks/hosted_servers.py --servers mcqa --ways own,here   # some of them
python benchmarks/hosted_servers.py --json

`benchmarks/hosted` is a checkout of five servers and an agent, as authors write them. The ways:

    own    the environment of the same name as a class of Ludus
    here   the server in the process of the collection: --set resources.isolate=false
    child  the server in a child process, which is the default
    agent  the server and an agent written for NeMo Gym, each in a child process (first server only)

All ways play the same rows with the same scripted model, 64 rollouts at a time, and must give the same rewards. CPU
time is that of all processes together. The cost of a rollout is the slope between 200 and 2,000 rollouts; start-up is
the CPU time of a collection of five. Each collection runs in a fresh process, one at a time, and the smallest of three
counts. Memory is the peak of each process.
"""

import argparse
import asyncio
import json
import os
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any

from measure import SAMPLE_EVERY_S, run_json

import ludus
from ludus.collection.collector import Collector
from ludus.models.scripted import ScriptedModel

HERE = Path(__file__).parent
HOSTED = HERE / "hosted"
FIRST, JUDGED = "example_single_tool_call", "equivalence_llm_judge"
SERVERS = (FIRST, "example_session_state_mgmt", "example_multi_step", "mcqa", JUDGED)
WAYS = ("own", "here", "child", "agent")
ROWS, FEW, MANY, CONCURRENCY = 5, 200, 2_000, 64

#: The limits of the first server: CPU milliseconds of a rollout by way, and the megabytes of any process.
MOST_MS = {"here": 3.0, "child": 6.0}
MOST_MB = 200.0


def settings_of(server: str, way: str) -> dict[str, Any]:
    """The settings of a collection. Our judge has a cache for repeated questions, which the server lacks: it is off."""
    settings: dict[str, Any] = {"resources.isolate": False} if way == "here" else {}
    if server == JUDGED:
        settings["resources.judge"] = f"scripted:{HOSTED / 'scripts' / 'judge.yaml'}"
        if way == "own":
            settings["resources.judge_cache_size"] = 0
    return settings


def place_of(server: str, way: str) -> str:
    """What to collect: the name of an environment of ours, or a folder of the checkout."""
    if way == "own":
        return server
    return str(HOSTED / ("responses_api_agents/loop_agent" if way == "agent" else f"resources_servers/{server}"))


class Memory:
    """The peak memory of this process and of its largest child, in megabytes."""

    def __init__(self) -> None:
        self.child = 0.0

    async def watch(self, collector: Collector) -> None:
        """Look at the children while a collection runs: a process takes its peak with it when it ends."""
        while True:
            self.child = max([self.child, *(_peak_megabytes(number) for number in _children())])
            await asyncio.sleep(SAMPLE_EVERY_S)

    @property
    def own(self) -> float:
        """The peak of this process."""
        return _peak_megabytes("self")


def _children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def _peak_megabytes(process: str) -> float:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:  # it has ended
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def once(server: str, way: str, rollouts: int) -> dict[str, Any]:
    """One collection in this process: its CPU seconds, its peak memory, and the rewards of each row."""
    rows = HOSTED / "resources_servers" / server / "data" / "example.jsonl"
    memory, model = Memory(), ScriptedModel.load(str(HOSTED / "scripts" / f"{server}.yaml"))
    with tempfile.TemporaryDirectory() as folder:
        collection = ludus.collect(
            place_of(server, way),
            watch=memory.watch,
            model=model,
            input=rows,
            output=Path(folder) / "out",
            repeats=rollouts // ROWS,
            concurrency=CONCURRENCY,
            settings=settings_of(server, way),
        )
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        own_mb = memory.own
        rewards: dict[str, set[float | None]] = {}
        for rollout in collection.rollouts:
            rewards.setdefault(json.dumps(rollout.job.row, sort_keys=True), set()).add(rollout.reward)
    return {
        "cpu_s": sum(part.ru_utime + part.ru_stime for part in used),
        "own_mb": own_mb,
        "child_mb": memory.child,
        "rewards": [sorted(rewards[row], key=str) for row in sorted(rewards)],
    }


def measure(server: str, way: str, rounds: int) -> dict[str, Any]:
    """The cost of a rollout, of the start and the peak memory of one way."""
    runs: dict[int, list[dict[str, Any]]] = {}
    for _ in range(rounds):
        for rollouts in (ROWS, FEW, MANY):
            words = ["--once", "--servers", server, "--ways", way, "--rollouts", str(rollouts)]
            runs.setdefault(rollouts, []).append(run_json([sys.executable, __file__, *words]))
    cpu = {rollouts: min(run["cpu_s"] for run in of_size) for rollouts, of_size in runs.items()}
    every = [run for of_size in runs.values() for run in of_size]
    return {
        "server": server,
        "way": way,
        "ms_per_rollout": 1000 * (cpu[MANY] - cpu[FEW]) / (MANY - FEW),
        "start_s": cpu[ROWS],
        "own_mb": max(run["own_mb"] for run in every),
        "child_mb": max(run["child_mb"] for run in every),
        "rewards": _agreed(f"{server} {way}", [run["rewards"] for run in every]),
    }


def _agreed(what: str, seen: list[Any]) -> Any:
    if any(rewards != seen[0] for rewards in seen):
        raise RuntimeError(f"{what}: rewards differ: {seen}")
    return seen[0]


def compare(servers: list[str], ways: list[str], rounds: int) -> list[dict[str, Any]]:
    """Measure servers in every way. Raises an error if two ways give different rewards."""
    results = []
    for server in servers:
        measured = [measure(server, way, rounds) for way in ways if way != "agent" or server == FIRST]
        _agreed(server, [one["rewards"] for one in measured])
        results += measured
    return results


def limits(results: list[dict[str, Any]]) -> list[str]:
    """What the project promises, and whether it holds."""
    lines = []
    for one in results:
        most = MOST_MS.get(one["way"])
        if one["server"] == FIRST and most is not None:
            holds = "holds" if one["ms_per_rollout"] <= most else "DOES NOT HOLD"
            lines.append(f"{FIRST} {one['way']}: at most {most:g} ms a rollout {holds}: {one['ms_per_rollout']:.2f} ms")
    largest = max(max(one["own_mb"], one["child_mb"]) for one in results)
    holds = "holds" if largest < MOST_MB else "DOES NOT HOLD"
    return [*lines, f"less than {MOST_MB:g} MB a process {holds}: {largest:.0f} MB"]


def table(results: list[dict[str, Any]]) -> str:
    """The results as text."""
    lines = [f"{'server':28} {'way':6} {'ms a rollout':>12} {'start-up s':>10} {'own MB':>8} {'child MB':>8}"]
    for one in results:
        child = f"{one['child_mb']:.0f}" if one["child_mb"] else "-"
        figures = f"{one['ms_per_rollout']:12.2f} {one['start_s']:10.2f} {one['own_mb']:8.0f} {child:>8}"
        lines.append(f"{one['server']:28} {one['way']:6} {figures}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", default=",".join(SERVERS))
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--once", action="store_true", help="one collection, in this process")
    parser.add_argument("--rollouts", type=int, default=MANY)
    given = parser.parse_args()
    servers, ways = given.servers.split(","), given.ways.split(",")
    if given.once:
        print(json.dumps(once(servers[0], ways[0], given.rollouts)))
        return
    results = compare(servers, ways, given.rounds)
    if given.json:
        print(json.dumps({"load": os.getloadavg(), "results": results, "limits": limits(results)}))
    else:
        print(table(results), *limits(results), f"load {os.getloadavg()[0]:.1f}", sep="\n")


if __name__ == "__main__":
    main()
