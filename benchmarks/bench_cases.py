"""The cases of `make bench`: each measures some figures, as a ratio against a floor if there is one.

The floor is a bare loop that makes the same calls with aiohttp (floor.py). Floor and product alternate in fresh
processes and the best run of each is compared, because other load on the machine only makes a run slower. The cost of
the shortest rollouts is the median ratio of two runs that follow each other: the speed of a machine drifts, too.
"""

import contextlib
import importlib.util
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from measure import certified, run_json, stub_server

HERE = Path(__file__).parent


class Figure(NamedTuple):
    """A measured value and its bound."""

    title: str
    value: float
    bound: float
    unit: str = ""
    at_least: bool = False

    @property
    def holds(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound


Figures = list[Figure]
Case = Callable[[int], Figures]


def alternating(
    rounds: int,
    turns: int,
    rollouts: int,
    concurrency: int,
    delay: float = 0,
    tool_bytes: int = 16,
    tokens: int = 0,
    **server: object,
) -> dict[str, list[dict[str, Any]]]:
    """The runs of the floor and of the product, alternating against one model server."""
    flags = ["--rollouts", rollouts, "--concurrency", concurrency, "--turns", turns, "--tool-bytes", tool_bytes]
    found: dict[str, list[dict[str, Any]]] = {"floor": [], "product": []}
    with stub_server(turns=turns, delay=delay, tokens=tokens, **server) as url:
        for _ in range(rounds):
            for name, runs in found.items():
                extra = ["--tokens"] if tokens and name == "product" else []
                words = [sys.executable, HERE / f"{name}.py", "--url", url, *flags, *extra]
                runs.append(run_json([str(word) for word in words]))
    return found


def pair(rounds: int, **options: Any) -> tuple[Any, Any]:
    """The best floor run and the best product run."""
    found = alternating(rounds, **options)
    best = {name: {key: min(run[key] for run in runs) for key in runs[0]} for name, runs in found.items()}
    return best["floor"], best["product"]


def cpu_ratio(rounds: int, **options: Any) -> float:
    """The CPU of the product against the floor: the median ratio of two runs that follow each other."""
    found = alternating(rounds, **options)
    pairs = zip(found["floor"], found["product"], strict=True)
    return statistics.median(product["cpu_s"] / floor["cpu_s"] for floor, product in pairs)


def overhead(rounds: int) -> Figures:
    rounds = 2 * rounds  # runs of one second: other load on the machine disturbs them most
    few = cpu_ratio(rounds, turns=1, rollouts=3000, concurrency=64)
    many = cpu_ratio(max(1, rounds // 4), turns=1, rollouts=8192, concurrency=4096)
    with certified() as certificate:
        over_tls = cpu_ratio(rounds, turns=1, rollouts=3000, concurrency=64, certificate=certificate)
    return [
        Figure("3,000 rollouts, 64 at once: CPU against the floor", few, 1.1, "x"),
        Figure("8,192 rollouts, 4,096 at once: CPU against the floor", many, 0.65, "x"),
        Figure("3,000 over TLS, 64 at once: CPU against the floor", over_tls, 1.2, "x"),
    ]


def in_flight(rounds: int) -> Figures:
    rounds = max(1, rounds // 2)
    floor, product = pair(rounds, turns=1, rollouts=16384, concurrency=16384, delay=1)
    return [
        Figure(
            "16,384 in flight, model takes 1 s: wall against the floor", product["wall_s"] / floor["wall_s"], 1.5, "x"
        ),
        Figure("16,384 in flight: memory against the floor", product["rss_growth"] / floor["rss_growth"], 1.5, "x"),
        Figure("16,384 in flight: memory", product["rss_peak"] / 1e6, 700, "MB"),
    ]


def long_rollouts(rounds: int) -> Figures:
    short_floor, short = pair(rounds, turns=10, rollouts=600, concurrency=32, tool_bytes=2048)
    long_floor, long = pair(rounds, turns=100, rollouts=100, concurrency=32, tool_bytes=2048)

    def growth(ten: dict[str, Any], hundred: dict[str, Any]) -> float:
        return float((hundred["cpu_s"] / (100 * 100)) / (ten["cpu_s"] / (600 * 10)))

    ratio = growth(short, long) / growth(short_floor, long_floor)
    return [Figure("CPU per turn, 100 turns against 10, relative to the floor", ratio, 1.2, "x")]


def checkpoints(rounds: int) -> Figures:
    added = script("checkpoints", "--pairs", str(10 * rounds))["median_added"]
    return [Figure("20 turns: CPU that saving each turn adds", 100 * added, 3, "%")]


def large_input(rounds: int) -> Figures:
    grown = run_json([sys.executable, str(HERE / "large_input.py")])["growth_bytes"] / 1e6
    return [Figure("1,000,000 rows: memory growth from row 1,000 to 20,000", grown, 30, "MB")]


def tokens(rounds: int) -> Figures:
    floor, product = pair(rounds, turns=29, rollouts=40, concurrency=8, tokens=2000)
    _, half = pair(1, turns=14, rollouts=20, concurrency=8, tokens=2000)
    return [
        Figure("30 turns, 60,000 tokens: CPU against the floor", product["cpu_s"] / floor["cpu_s"], 3, "x"),
        Figure("stored record, 30 turns against 15", product["row_bytes"] / half["row_bytes"], 2.2, "x"),
    ]


def conversion(rounds: int) -> Figures:
    times = run_json([sys.executable, str(HERE / "conversion.py")])
    return [Figure("100 items to Chat and back", times["both_ways_s"] * 1000, 1, "ms")]


def endpoints(rounds: int) -> Figures:
    """Four endpoints, one of them five times slower, against three fast ones."""

    def wall(delays: list[float]) -> float:
        with contextlib.ExitStack() as stack:
            urls = ",".join(stack.enter_context(stub_server(turns=1, delay=delay)) for delay in delays)
            words = ["--url", urls, "--rollouts", "2000", "--concurrency", "64"]
            return min(run_json([sys.executable, str(HERE / "product.py"), *words])["wall_s"] for _ in range(rounds))

    slowdown = wall([0.1, 0.1, 0.1, 0.5]) / wall([0.1, 0.1, 0.1])
    failed_runs = run_json([sys.executable, str(HERE / "dying_endpoint.py")])["failed_runs"]
    return [
        Figure("4 endpoints, one 5 x slower: wall against the three alone", slowdown, 1 / 0.95, "x"),
        Figure("an endpoint dies during the run: runs with a failed rollout", failed_runs, 0, ""),
    ]


def start_up(rounds: int) -> Figures:
    def best(*words: str) -> float:
        times = []
        for _ in range(rounds + 2):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-m", "ludus", *words], check=True, capture_output=True)
            times.append(time.perf_counter() - began)
        return min(times)

    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.yaml"
        script.write_text("- done\n")
        first = ["collect", "example_session_state_mgmt", "--limit", "1", "--model", f"scripted:{script}"]
        return [
            Figure("ludus --help", best("--help"), 0.4, "s"),
            Figure(
                "first rollout with a scripted model",
                best(*first, "--output", f"{folder}/out", "--overwrite"),
                1.0,
                "s",
            ),
        ]


def script(name: str, *words: str) -> Any:
    """The report of another script in this folder."""
    return run_json([sys.executable, str(HERE / f"{name}.py"), *words])


def verdicts(rounds: int) -> Figures:
    runs = [script("verify_speed") for _ in range(rounds)]
    bounds = {"calendar": 0.5, "math_advanced_calculations": 0.5}
    best = {name: min(run[name] for run in runs) * 1000 for name in runs[0]}
    return [Figure(f"a verdict of {name}, median", best[name], bounds.get(name, 1), "ms") for name in best]


def hostile(rounds: int) -> Figures:
    lag = script("loop_lag")["p99_s"] * 1000
    return [Figure("event-loop lag while 64 hostile 5 s verifications run, p99", lag, 20, "ms")]


def math_pool(rounds: int) -> Figures:
    share = max(script("math_pool")["ratio"] for _ in range(max(1, rounds // 2)))
    return [Figure("math through the pool, against a bare pool", share, 0.8, "x", at_least=True)]


def code_pool(rounds: int) -> Figures:
    found = script("code_pool")
    return [
        Figure("code_gen: 1,000 programs of 20 tests, against a bare pool", found["ratio"], 0.8, "x", at_least=True),
        Figure("the same, against exec in a bare pool", found["ratio_in_process"], 0, "x", at_least=True),
    ]


def verify_file(rounds: int) -> Figures:
    found = script("verify_file")
    return [
        Figure(
            "ludus verify of 100,000 rollouts, against reading and writing",
            found["floor_s"] / found["same_s"],
            0.3,
            "x",
            at_least=True,
        ),
        Figure("ludus verify: memory growth from 10,000 to 100,000", found["growth_bytes"] / 1e6, 20, "MB"),
    ]


def export_file(rounds: int) -> Figures:
    found = script("export_file", "--rounds", str(max(1, rounds // 2)))
    speeds = [
        Figure(f"export of 100,000 rollouts to {name}, against reading and writing", speed, 1 / 3, "x", at_least=True)
        for name, speed in found["speed"].items()
    ]
    return speeds + [
        Figure(f"export of 1,000,000 rollouts to {name}: memory growth", grown / 1e6, 20, "MB")
        for name, grown in found["growth_bytes"].items()
    ]


def workplace(rounds: int) -> Figures:
    found = script("workplace")
    return [
        Figure("an office session: open, 6 calls, verify", found["session_cpu_ms"], 5, "ms"),
        Figure("4,096 open office sessions: memory", found["growth_bytes"] / 1e6, 200, "MB"),
    ]


def search(rounds: int) -> Figures:
    found = script("search")
    return [
        Figure("50,000 documents: a query, median", found["median_ms"], 5, "ms"),
        Figure("50,000 documents: building the index", found["build_s"], 20, "s"),
    ]


def view(rounds: int) -> Figures:
    found = script("view_run")
    beside = script("view_beside")["more"]
    painted = [Figure("1 GB run: first paint in chromium", found["paint_seconds"], 1, "s")]
    return [
        *(painted if found["paint_seconds"] is not None else []),
        Figure("a collection with the viewer beside it: more CPU", 100 * beside, 5, "%"),
        Figure("1 GB run: the viewer's first page, nothing indexed", found["first_seconds"], 1, "s"),
        Figure("1 GB run: opening one rollout", found["rollout_seconds"] * 1000, 100, "ms"),
        Figure("1 GB run: a search", found["search_seconds"] * 1000, 200, "ms"),
        Figure("1 GB run: indexing, a second", found["index_mb_per_second"], 20, "MB", True),
        Figure("1 GB run: memory of the viewer", found["memory_bytes"] / 1e6, 150, "MB"),
        Figure("the viewer's page, compressed", found["page_bytes"] / 1000, 150, "kB"),
    ]


def servers(rounds: int) -> Figures:
    steady, many = script("serving", "sessions"), script("serving", "many_sessions")
    memory = script("serving", "memory")
    return [
        Figure("tool calls a second, against bare Starlette", script("serving", "tool_calls")["share"], 0.7, "x", True),
        Figure("1.4 MB answers, against bare orjson", script("serving", "large_response")["share"], 0.5, "x", True),
        Figure("/run with all three remote: CPU against in process", script("serving", "run")["ratio"], 3.5, "x"),
        Figure("2,048 sessions, a call a second each: errors", steady["errors"], 0),
        Figure("2,048 sessions, a call a second each: p99", steady["p99"], 0.5, "s"),
        Figure("8,192 sessions, two workers, a call a second each: errors", many["errors"], 0),
        Figure("8,192 sessions, two workers, a call a second each: p99", many["p99"], 0.5, "s"),
        Figure("100,000 sessions opened and closed: memory growth", memory["growth_bytes"] / 1e6, 20, "MB"),
    ]


def sandboxes(rounds: int) -> Figures:
    found, crowd, uses = script("sandboxes", "start"), script("sandboxes", "crowd"), script("sandboxes", "uses")
    return [
        Figure(
            "a Python program in a warm sandbox: CPU against plain", found["warm_python"] / found["python"], 0.5, "x"
        ),
        Figure("/bin/true in a new sandbox: CPU against plain", found["cold_true"] / found["true"], 10, "x"),
        Figure("python in a new sandbox: CPU against plain", found["cold_python"] / found["python"], 1.5, "x"),
        Figure("64 sandboxes, one hostile: p99 of the others, against none", crowd["ratio"], 2, "x"),
        Figure("10,000 uses: processes, mounts, folders and groups left", uses["left"], 0),
        Figure("10,000 uses: memory growth after the first 1,000", uses["growth_bytes"] / 1e6, 5, "MB"),
    ]


def workers(rounds: int) -> Figures:
    busy, instant = script("workers", "speed", "--burn-ms", "10"), script("workers", "speed")
    grown = script("workers", "memory")["growth_bytes"] / 1e6
    figures = [
        Figure("--workers 2 against one process, verdicts of 10 ms", busy["speedup"], 1.8, "x", at_least=True),
        Figure("--workers 2 against one process, instant model", instant["speedup"], 1.7, "x", at_least=True),
        Figure("1,000,000 rollouts in workers: memory growth of the parent from a tenth on", grown, 20, "MB"),
    ]
    if importlib.util.find_spec("ray") is not None:  # the extra `ray` is not part of dev
        ratio = script("workers", "ray", "--burn-ms", "2")["ratio"]
        figures.append(Figure("two Ray actors against --workers 2, once started", ratio, 0.85, "x", at_least=True))
    return figures


def training(rounds: int) -> Figures:
    speed = script("training", "--rounds", str(rounds))
    return [
        Figure("groups for a trainer against the plain collector, rollouts a second", speed["ratio"], 0.9, "x", True)
    ]


CASES: dict[str, Case] = {
    "overhead": overhead,
    "in_flight": in_flight,
    "long_rollouts": long_rollouts,
    "checkpoints": checkpoints,
    "large_input": large_input,
    "tokens": tokens,
    "conversion": conversion,
    "endpoints": endpoints,
    "start_up": start_up,
    "verdicts": verdicts,
    "hostile": hostile,
    "math_pool": math_pool,
    "code_pool": code_pool,
    "verify_file": verify_file,
    "export_file": export_file,
    "workplace": workplace,
    "search": search,
    "view": view,
    "sandboxes": sandboxes,
    "servers": servers,
    "workers": workers,
    "training": training,
}
