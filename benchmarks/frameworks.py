"""The same jobs in Ludus and in the newest release of other frameworks, 64 to 16,384 rollouts in flight.

    python benchmarks/frameworks.py --output frameworks.json
    python benchmarks/frameworks.py --only ludus inspect --jobs single --in-flight 64 --output frameworks.json

Each framework runs in a process tree and a virtual environment of its own (`.venv-frameworks/NAME`, made here), asks a
stub server on loopback that runs outside of what is measured, and has the same number of rollouts in flight. The jobs:
a single turn, one tool call, ten turns (nine calls of the tool), a harness (mini-swe-agent), every tenth task answered
with status 500, and SIGKILL halfway followed by the framework's own way to resume. The frameworks take turns for
`--rounds` rounds; the tables have the medians. A run that needs more than `--limit-s` seconds of CPU after its first
model call is stopped; its figures are those of the rollouts that were done. `framework_jobs/measured_run.py` says what
each figure is. rLLM is not played: it is not on PyPI.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "framework_jobs"))

from installed import FRAMEWORKS, python_of, version_of
from measured_run import Job, measured, stub, watch
from process_tree import adopt_orphans
from tables import table

from ludus.runtime.running import raise_file_limit

IN_FLIGHT = (64, 1024, 4096, 16_384)
MEASURED, BEHAVIOURS = ("single", "tool", "ten", "harness"), ("errors", "kill")
#: Rollouts for each place in flight, and at least so many.
ROLLOUTS = {"single": (2, 512), "tool": (2, 256), "ten": (1, 128), "harness": (1, 2)}
HARNESS_IN_FLIGHT = 2
#: CPU seconds for a run of `errors` or `kill`, its start included.
BEHAVIOUR_LIMIT_S = 120.0
#: The model calls of a rollout take together so long for each place in flight, and at least LEAST_S.
SECONDS_PER_PLACE, LEAST_S = 1 / 2000, 0.25


def play(name: str, python: Path, job: str, in_flight: int, given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One measured run."""
    each, least = ROLLOUTS[job]
    output = folder / f"{name}-{job}-{in_flight}-{len(list(folder.iterdir()))}"
    calls = {"single": 1, "tool": 2, "ten": 10, "harness": 3}[job]
    delay_s = max(LEAST_S, in_flight * SECONDS_PER_PLACE) / calls
    started = Job(name, python, job, max(each * in_flight, least), in_flight, output)
    return {**measured(started, round(delay_s, 4), given.limit_s), "load": os.getloadavg()[0]}


def errors(name: str, python: Path, folder: Path) -> dict[str, Any]:
    """Every tenth of 30 tasks gets only answers with status 500."""
    with stub(fail_every=10) as server:
        job = Job(name, python, "single", 30, 10, folder / f"{name}-errors")
        return {**watch(job, server, BEHAVIOUR_LIMIT_S, lambda: False), **server.get("/stats")}


def kill(name: str, python: Path, folder: Path) -> dict[str, Any]:
    """SIGKILL to all processes after half of the answers, then the framework's way to resume."""
    rollouts = 60
    job = Job(name, python, "single", rollouts, 5, folder / f"{name}-kill")
    with stub(delay=0.3) as server:
        watch(job, server, BEHAVIOUR_LIMIT_S, lambda: server.get("/stats")["finished"] >= rollouts // 2)
        before = server.get("/stats")["finished"]
        run = watch(job, server, BEHAVIOUR_LIMIT_S, lambda: False, "--resume")
        counts = server.get("/stats")
        return {**run, "rollouts": rollouts, "answers_before": before, "asked_again": counts["repeated"]}


def cells(given: argparse.Namespace) -> list[tuple[str, int]]:
    """What is played in each round: a job and a number in flight."""
    played = [(job, in_flight) for in_flight in given.in_flight for job in given.jobs if job in MEASURED]
    return [cell for cell in played if cell[0] != "harness"] + [
        ("harness", HARNESS_IN_FLIGHT) for job in given.jobs if job == "harness"
    ]


def rounds(pythons: dict[str, Path], given: argparse.Namespace, folder: Path, found: dict[str, Any]) -> None:
    """All runs: frameworks in turn, for each cell; a cell that took long is not played again."""
    runs: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    gave_up: set[tuple[str, str]] = set()
    for job, in_flight in cells(given):
        for number in range(given.rounds):
            for name, python in pythons.items():
                cell = f"{job} {in_flight}"
                played = runs[name, cell]
                if job not in FRAMEWORKS[name].jobs or (number and played[0]["whole_s"] > given.again_s):
                    continue
                if (name, job) in gave_up:
                    found[name].setdefault(cell, {"end": "not played: fewer in flight did not finish"})
                    continue
                run = play(name, python, job, in_flight, given, folder)
                played.append(run)
                found[name][cell] = medians(played)
                save(found, given)
                print(f"{name} {cell}: {words(run)}; load {run['load']:.1f}", flush=True)
                if run["end"] != "finished" and job != "single":
                    gave_up.add((name, job))


def save(found: dict[str, Any], given: argparse.Namespace) -> None:
    """Write what was found so far."""
    if given.output:
        given.output.write_text(json.dumps(found, indent=2) + "\n")


def medians(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of each figure, and of the other entries the last."""
    merged = {**runs[-1], "runs": len(runs)}
    for figure, value in runs[-1].items():
        if isinstance(value, float):
            merged[figure] = statistics.median(run[figure] for run in runs if run.get(figure) is not None)
    return merged


def words(run: dict[str, Any]) -> str:
    """The figures of a run on one line."""
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in run.items()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=FRAMEWORKS, default=list(FRAMEWORKS))
    parser.add_argument("--jobs", nargs="+", choices=MEASURED + BEHAVIOURS, default=list(MEASURED + BEHAVIOURS))
    parser.add_argument("--in-flight", nargs="+", type=int, default=list(IN_FLIGHT))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit-s", type=float, default=40.0, help="CPU seconds of a run after its first call")
    parser.add_argument("--again-s", type=float, default=30.0, help="a run that took longer is played only once")
    parser.add_argument("--output", type=Path, help="write all figures as JSON; figures of other jobs in it are kept")
    given = parser.parse_args()
    raise_file_limit()
    adopt_orphans()
    pythons = {name: python for name in given.only if (python := python_of(name)) is not None}
    found: dict[str, Any] = {}
    if given.output and given.output.exists():
        found = json.loads(given.output.read_text())
    for name, python in pythons.items():
        found.setdefault(name, {})["version"] = version_of(name, python)
    with tempfile.TemporaryDirectory() as folder:
        for behaviour in (errors, kill):
            for name, python in pythons.items():
                if behaviour.__name__ in given.jobs and behaviour.__name__ in FRAMEWORKS[name].jobs:
                    found[name][behaviour.__name__] = behaviour(name, python, Path(folder))
                    save(found, given)
                    print(f"{name} {behaviour.__name__}: {words(found[name][behaviour.__name__])}", flush=True)
        rounds(pythons, given, Path(folder), found)
    print(table(found))


if __name__ == "__main__":
    main()
