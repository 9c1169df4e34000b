"""Many sandboxes of the environment `terminal` at once, over two worker processes: what a command takes, what is left.

    python benchmarks/many_sandboxes.py 64 1000

Each number is a collection of so many rollouts, all in flight together, with four commands each. `command` is the time
that a command itself says it took; `waited` is that of the whole call, with the wait for a turn to run, and without the
first call of a rollout, which also opens the sandbox. `left` counts the processes, mounts, control groups, open files
and temporary files of ours that were not there before: it must be 0.
"""

import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ludus

TIMED = "began=$(date +%s%N); {{ {command}; }} > out; echo took $(($(date +%s%N) - began))"
COMMANDS = ("ls / > list; wc -l list", "cat list", "seq 1 2000 | tail -n 1", "cp list copy; cmp list copy && echo same")
WORKERS = 2


def measured(boxes: int, folder: Path) -> dict[str, Any]:
    """Collect, and report on the commands."""
    script = folder / "script.yaml"
    calls = [{"call": "bash", "arguments": {"command": TIMED.format(command=command)}} for command in COMMANDS]
    turns = [*calls, "Done."]
    script.write_text(json.dumps([{"turns": turns}]))
    output = folder / f"run-{boxes}"
    before, began, cpu = left(), time.perf_counter(), cpu_s()
    ludus.collect(
        "terminal",
        model=f"scripted:{script}",
        limit=1,
        repeats=boxes,
        workers=WORKERS,
        concurrency=boxes,
        output=output,
    )
    waited: list[float] = []
    command: list[float] = []
    outcomes: dict[str, int] = {}
    for line in (output / "rollouts.jsonl").open():
        row = json.loads(line)
        outcomes[row["outcome"]] = outcomes.get(row["outcome"], 0) + 1
        waited += [step[2] for step in row["timings"]["steps"] if step[0] == "tool"][1:]
        outputs = [item["output"] for item in row["response"]["output"] if item["type"] == "function_call_output"]
        command += [int(re.findall(r"took (\d+)", output)[0]) / 1e9 for output in outputs]
    return {
        "boxes": boxes,
        "outcomes": outcomes,
        "command_ms": p50_and_p99(command),
        "waited_ms": p50_and_p99(waited),
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_ms_a_rollout": round((cpu_s() - cpu) * 1000 / boxes, 1),
        "left": {name: count - before[name] for name, count in left().items()},
    }


def p50_and_p99(seconds: list[float]) -> list[float]:
    """Both in milliseconds."""
    return [round(value * 1000, 1) for value in (statistics.median(seconds), statistics.quantiles(seconds, n=100)[98])]


def cpu_s() -> float:
    """The CPU time of this process and of its children that ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def left() -> dict[str, int]:
    """What there is of ours on this machine."""
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(os.getpid())], capture_output=True, check=False).stdout
    groups = [name for _, names, _ in os.walk("/sys/fs/cgroup") for name in names if name.startswith("ludus-sandbox-")]
    return {
        "processes": len(children.split()),
        "control_groups": sum(_is_ours(name) for name in groups),
        "mounts": Path("/proc/self/mountinfo").read_text().count("\n"),
        "open_files": len(os.listdir("/proc/self/fd")),
        "folders": sum(name.startswith("ludus-") for name in os.listdir(tempfile.gettempdir())),
    }


def _is_ours(group: str) -> bool:
    """Whether the owner of a control group is gone: those of other processes that run are not ours."""
    return not Path("/proc", group.split("-")[2]).exists()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        reports = [measured(int(boxes), Path(name)) for boxes in sys.argv[1:] or ("64", "1000")]
    ratio = round(reports[-1]["command_ms"][1] / reports[0]["command_ms"][1], 2)
    print(json.dumps({"runs": reports, "p99_ratio": ratio}, indent=1))
