"""`ludus view` over a run of 100,000 rollouts, about 1 GB: first paint, one rollout, a search, indexing, memory.

python benchmarks/view_run.py [--rollouts 100000]

The viewer runs in a process of its own. `first_seconds` is the time from its start until it has sent the page and the
list of runs, with nothing indexed. The other times are medians of requests to an indexed run, as a browser sends them.
`paint_seconds` is the best first paint of three in chromium, if that and playwright are installed.
Indexing is measured from the start of the viewer until all can be searched. Its CPU seconds and its memory are those of
the viewer and its helper process together.
"""

import argparse
import contextlib
import gzip
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import orjson
import psutil

import ludus

ROLLOUTS = 100_000
REPEATS = 8


def make(folder: Path, rollouts: int) -> int:
    """A run of rollouts of about 10 kB: three turns with tools, reasoning, text of a large vocabulary, token ids."""
    rng = random.Random(1)
    words = ["".join(rng.choices("etaoinshrdlucmfwypvbgkqjxz", k=rng.randint(2, 10))) for _ in range(30_000)]
    texts = [" ".join(rng.choices(words, k=160)) for _ in range(4000)]
    ids = [[rng.randint(0, 50_000) for _ in range(250)] for _ in range(500)]
    logprobs = [[round(-rng.expovariate(1), 4) for _ in range(120)] for _ in range(500)]
    folder.mkdir(parents=True, exist_ok=True)
    size = 0
    with (folder / "rollouts.jsonl").open("wb") as file:
        for number in range(rollouts):
            task, repeat = divmod(number, REPEATS)
            output = [{"type": "reasoning", "summary": [{"type": "summary_text", "text": rng.choice(texts)}]}]
            for turn in range(3):
                output += [
                    {"type": "function_call", "name": "search", "call_id": f"c{turn}", "arguments": '{"q": "x"}'},
                    {"type": "function_call_output", "call_id": f"c{turn}", "output": rng.choice(texts)},
                ]
            output.append(
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": texts[7]}]}
            )
            if number % 1000 == 0:
                output.append({"type": "message", "role": "assistant", "content": f"needle{number // 1000}"})
            call = {"items": 2, "prefix": 0, "prompt_ids": rng.choice(ids), "generated_ids": rng.choice(ids)[:120]}
            row = {
                "rollout_id": f"task-{task}-{repeat}",
                "task_id": f"task-{task}",
                "repeat": repeat,
                "attempt": 1,
                "outcome": "completed",
                "agent_ref": {"type": "responses_api_agents", "name": "bench"},
                "responses_create_params": {"input": [{"role": "user", "content": rng.choice(texts)[:600]}]},
                "reward": float(rng.random() < 0.4),
                "stop_reason": "completed",
                "response": {"model": "bench", "created_at": 1_700_000_000 + number, "output": output},
                "usage": {"input_tokens": 900, "output_tokens": rng.randint(50, 900)},
                "timings": {"model": 1.5, "tool": 0.2, "verify": 0.01, "total": 1.8},
                "model_calls": [{**call, "logprobs": rng.choice(logprobs), "policy_version": "1"}] * 2,
            }
            line = orjson.dumps(row) + b"\n"
            size += len(line)
            file.write(line)
    return size


class Client:
    """A browser's requests."""

    def __init__(self, link: str) -> None:
        self.cookies = CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.cookies))
        self.url = link.partition("/?")[0]
        self._opener.open(link).read()

    def get(self, path: str) -> bytes:
        with self._opener.open(self.url + path) as reply:
            found: bytes = reply.read()
        return found

    def median(self, paths: list[str]) -> float:
        """The median time of requests in seconds."""
        times = []
        for path in paths:
            began = time.perf_counter()
            self.get(path)
            times.append(time.perf_counter() - began)
        return statistics.median(times)


class Used:
    """The CPU seconds and the most memory of the viewer and its helper processes, as far as it was looked."""

    def __init__(self, pid: int) -> None:
        self.memory = 0
        self._viewer = psutil.Process(pid)
        self._seconds: dict[int, float] = {}

    def look(self) -> float:
        """The CPU seconds until now."""
        memory = 0
        for process in (self._viewer, *self._viewer.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                self._seconds[process.pid] = sum(process.cpu_times()[:2])
                memory += process.memory_info().rss
        self.memory = max(self.memory, memory)
        return sum(self._seconds.values())


@contextlib.contextmanager
def browser_page(client: Client) -> Iterator[Any]:
    """A page of chromium that has the viewer's cookie; None if chromium or playwright is missing."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        browser = None
    if browser is None:
        yield None
        return
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        context = opened.new_context()
        context.add_cookies([{"name": c.name, "value": c.value or "", "url": client.url} for c in client.cookies])
        yield context.new_page()
        opened.close()


def first_paint(client: Client) -> float | None:
    """The seconds from the start of a navigation in chromium to the first content on the screen; the best of three."""
    with browser_page(client) as page:
        if page is None:
            return None
        times = []
        for _ in range(3):
            page.goto("about:blank")
            page.goto(client.url)
            page.wait_for_selector("table.runs")
            painted = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
            times.append(page.wait_for_function(painted).json_value() / 1000)
    return float(min(times))


def measure(folder: Path, rollouts: int) -> dict[str, float | None]:
    size = (folder / "rollouts.jsonl").stat().st_size
    began = time.perf_counter()
    command = [sys.executable, "-m", "ludus", "view", str(folder), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            client = Client(json.loads(server.stdout.readline())["link"])
            for path in ("/", "/app.js", "/app.css"):
                client.get(path)
            run = json.loads(client.get("/api/runs"))["runs"][0]["key"]
            client.get(f"/api/run?run={run}")
            first = time.perf_counter() - began
            used = Used(server.pid)
            first_cpu = used.look()
            while True:
                used.look()
                progress = json.loads(client.get(f"/api/rollouts?run={run}&limit=1"))["index"]
                if progress["texts"] >= progress["bytes"]:
                    break
                time.sleep(0.1)
            seconds, cpu = time.perf_counter() - began, used.look()
            chosen = [random.Random(2).randint(1, rollouts) for _ in range(30)]
            found: dict[str, float | None] = {
                "bytes": size,
                "first_seconds": first,
                "first_cpu_seconds": first_cpu,
                "index_mb_per_second": size / 1e6 / seconds,
                "index_mb_per_cpu_second": size / 1e6 / (cpu - first_cpu),
                "paint_seconds": first_paint(client),
                "page_seconds": client.median([f"/api/run?run={run}"] * 3),
                "rollout_seconds": client.median([f"/api/rollout?run={run}&id={number}" for number in chosen]),
                "search_seconds": client.median([f"/api/rollouts?run={run}&q=needle{n}+reward:0" for n in range(20)]),
                "common_word_seconds": client.median([f"/api/rollouts?run={run}&q=completed&limit=100"] * 3),
                "index_bytes": sum(path.stat().st_size for path in folder.glob("view*.sqlite")),
            }
            used.look()
            found["memory_bytes"] = used.memory
        finally:
            server.terminate()
    static = Path(ludus.__file__).parent / "view" / "static"
    found["page_bytes"] = sum(len(gzip.compress(path.read_bytes())) for path in static.iterdir())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=ROLLOUTS)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as scratch:
        folder = given.folder or Path(scratch) / "run"
        if not (folder / "rollouts.jsonl").exists():
            make(folder, given.rollouts)
        print(json.dumps(measure(folder, given.rollouts)))


if __name__ == "__main__":
    main()
