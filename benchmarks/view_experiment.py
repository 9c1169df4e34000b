"""`ludus view` over an experiment of 50 runs and 500,000 rollouts: first page, curves, one rollout, a search, memory.

python benchmarks/view_experiment.py [--runs 50] [--rollouts 500000] [--folder DIR]

The viewer runs in a process of its own. It is started twice: with nothing indexed, which is measured until all can be
searched, and again with everything indexed. `first_seconds` is the time from its start until it has sent the page and
the list of runs. `curves_seconds` is the median of requests for the curves of eight figures, `curves_first_seconds` the
first of them. `curves_shown_seconds` is the time in chromium from the address to the drawn curves, the best of three.
Memory is that of the viewer and its helper process together, the most that was seen.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import orjson
from view_run import Client, Used, browser_page

REPEATS = 8
VERSIONS = 10


def make(folder: Path, runs: int, rollouts: int) -> None:
    """Runs of one experiment, of about 2 kB for each rollout: a training of 10 policy versions in each run."""
    rng = random.Random(1)
    words = ["".join(rng.choices("etaoinshrdlucmfwypvbgkqjxz", k=rng.randint(2, 10))) for _ in range(30_000)]
    texts = [" ".join(rng.choices(words, k=60)) for _ in range(4000)]
    each = rollouts // runs
    for number in range(runs):
        run = folder / f"rate-{number % 5}-seed-{number // 5}"
        run.mkdir(parents=True, exist_ok=True)
        identity = {"environments": {"bench": {}}, "model": {"name": "bench"}, "seed": number // 5}
        options = {"repeats": REPEATS, "pass_reward": {"bench": 1.0}, "rate": number % 5}
        started = f"2026-11-02T08:{number:02}:00+00:00"
        (run / "run.json").write_text(json.dumps({"identity": identity, "options": options, "started": started}))
        with (run / "rollouts.jsonl").open("wb") as file:
            for place in range(each):
                file.write(orjson.dumps(_row(number, place, place * VERSIONS // each, rng, texts)) + b"\n")


def _row(run: int, place: int, version: int, rng: random.Random, texts: list[str]) -> dict[str, object]:
    task, repeat = divmod(place, REPEATS)
    right = float(rng.random() < 0.1 + 0.08 * version)
    output: list[dict[str, object]] = [
        {"type": "function_call", "name": "search", "call_id": "c", "arguments": '{"q": "x"}'},
        {"type": "function_call_output", "call_id": "c", "output": rng.choice(texts)},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": rng.choice(texts)}]},
    ]
    if place % 1000 == 0:
        output.append({"type": "message", "role": "assistant", "content": f"needle{place // 1000} of run {run}"})
    return {
        "rollout_id": f"task-{task}-{repeat}",
        "task_id": f"task-{task}",
        "repeat": repeat,
        "attempt": 1,
        "outcome": "completed",
        "agent_ref": {"type": "responses_api_agents", "name": "bench"},
        "responses_create_params": {"input": [{"role": "user", "content": rng.choice(texts)[:200]}]},
        "reward": 0.2 + 0.8 * right,
        "reward_components": {"form": 0.2, "right": 0.8 * right},
        "stop_reason": "completed",
        "receipt": f"{'a' if version < 8 else 'd'}{'0' * 11}.{'b' * 12}.{'c' * 12}",
        "response": {"model": "bench", "created_at": 1_700_000_000 + place, "output": output},
        "usage": {"input_tokens": 900, "output_tokens": rng.randint(50, 900)},
        "timings": {"model": 1.5, "tool": 0.2, "verify": 0.01, "total": 1.8},
        "model_calls": [{"items": 2, "policy_version": version}, {"items": 1, "policy_version": version}],
    }


@contextmanager
def viewer(folder: Path) -> Iterator[tuple[Client, Used, float]]:
    """A viewer of a folder, and the seconds until it had sent the first page with the list of runs."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "ludus", "view", str(folder), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            client = Client(json.loads(server.stdout.readline())["link"])
            for path in ("/", "/app.js", "/app.css", "/api/runs"):
                client.get(path)
            first = time.perf_counter() - began
            yield client, Used(server.pid), first
        finally:
            server.terminate()


def until_searchable(client: Client, used: Used) -> float:
    """The seconds until every run is indexed."""
    began = time.perf_counter()
    while True:
        used.look()
        shown = json.loads(client.get("/api/runs"))
        runs = shown["runs"]
        if not shown["preparing"] and all(run["index"]["texts"] >= run["index"]["bytes"] for run in runs):
            return time.perf_counter() - began
        time.sleep(1)


def curves_shown(client: Client, at: str) -> float | None:
    """The seconds in chromium from the address of the experiment to its drawn curves; the best of three."""
    with browser_page(client) as page:
        if page is None:
            return None
        times = []
        for _ in range(3):
            page.goto("about:blank")
            began = time.perf_counter()
            page.goto(f"{client.url}/#/experiment?at={quote(at, safe='')}")
            page.wait_for_selector(".plot .line")
            times.append(time.perf_counter() - began)
    return min(times)


def measure(folder: Path) -> dict[str, float | None]:
    size = sum(path.stat().st_size for path in folder.glob("*/rollouts.jsonl"))
    for old in folder.glob("*/view*.sqlite*"):
        old.unlink()
    with viewer(folder) as (client, used, first):
        cold, indexing = first, until_searchable(client, used)
        indexing_memory = used.memory
    with viewer(folder) as (client, used, first):
        at = quote(str(folder), safe="")
        began = time.perf_counter()
        shown = json.loads(client.get(f"/api/experiment?at={at}"))
        first_curves = time.perf_counter() - began
        runs = [run["key"] for run in shown["runs"]]
        figures = [f"/api/experiment?at={at}&figure={quote(name)}" for name in shown["figures"][:8]]
        found: dict[str, float | None] = {
            "bytes": size,
            "points": sum(len(series["points"]) for series in shown["series"]),
            "first_seconds_not_indexed": cold,
            "index_mb_per_second": size / 1e6 / indexing,
            "index_memory_bytes": indexing_memory,
            "first_seconds": first,
            "runs_seconds": client.median(["/api/runs"] * 5),
            "curves_first_seconds": first_curves,
            "curves_seconds": client.median(figures),
            "curves_bytes": len(client.get(figures[0])),
            "curves_shown_seconds": curves_shown(client, str(folder)),
            "run_seconds": client.median([f"/api/run?run={run}" for run in runs[:5]]),
            "task_seconds": client.median([f"/api/task?at={at}&task=task-{number}" for number in range(5)]),
            "rollout_seconds": client.median([f"/api/rollout?run={run}&id=77" for run in runs[:20]]),
            "search_seconds": client.median([f"/api/rollouts?run={run}&q=needle3" for run in runs[:20]]),
            "search_all_runs_seconds": client.median([f"/api/search?at={at}&q=needle{n}" for n in range(1, 6)]),
        }
        used.look()
        found["memory_bytes"] = used.memory
    found["index_bytes"] = sum(path.stat().st_size for path in folder.glob("*/view*.sqlite"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--rollouts", type=int, default=500_000)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as scratch:
        folder = given.folder or Path(scratch) / "experiment"
        if not folder.exists():
            make(folder, given.runs, given.rollouts)
        print(json.dumps(measure(folder)))


if __name__ == "__main__":
    main()
