"""`make bench`: every figure the project promises, measured in one run, as ratios against the floor where there is one.

The floor is a bare loop that makes the same calls with the same HTTP client (floor.py). Floor and product take turns in
fresh processes and the best of each is compared, because neighbours only ever make a run slower.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measure import run_json, stub_server
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
Case = Callable[[int], list[tuple[str, float, float, str]]]


def pair(
    rounds: int, turns: int, rollouts: int, concurrency: int, delay: float = 0, tool_bytes: int = 16, tokens: int = 0
) -> tuple[Any, Any]:
    """The best floor and the best product of some rounds, measured in turn against one server."""
    flags = ["--rollouts", rollouts, "--concurrency", concurrency, "--turns", turns, "--tool-bytes", tool_bytes]
    found: dict[str, list[dict[str, Any]]] = {"floor": [], "product": []}
    with stub_server(turns=turns, delay=delay, tokens=tokens) as url:
        for _ in range(rounds):
            for name, runs in found.items():
                more = ["--tokens"] if tokens and name == "product" else []
                words = [sys.executable, HERE / f"{name}.py", "--url", url, *flags, *more]
                runs.append(run_json([str(word) for word in words]))
    best = {name: {key: min(run[key] for run in runs) for key in runs[0]} for name, runs in found.items()}
    return best["floor"], best["product"]


def overhead(rounds: int) -> list[tuple[str, float, float, str]]:
    floor, product = pair(rounds, turns=1, rollouts=3000, concurrency=64)
    return [("3,000 rollouts, 64 at once: CPU against the floor", product["cpu_s"] / floor["cpu_s"], 1.3, "x")]


def in_flight(rounds: int) -> list[tuple[str, float, float, str]]:
    rounds = max(1, rounds // 2)
    floor, product = pair(rounds, turns=1, rollouts=8192, concurrency=8192, delay=1)
    return [
        ("8,192 in flight, model takes 1 s: wall against the floor", product["wall_s"] / floor["wall_s"], 1.5, "x"),
        ("8,192 in flight: memory against the floor", product["rss_growth"] / floor["rss_growth"], 1.5, "x"),
    ]


def long_rollouts(rounds: int) -> list[tuple[str, float, float, str]]:
    short_floor, short = pair(rounds, turns=10, rollouts=600, concurrency=32, tool_bytes=2048)
    long_floor, long = pair(rounds, turns=100, rollouts=100, concurrency=32, tool_bytes=2048)

    def growth(ten: dict[str, Any], hundred: dict[str, Any]) -> float:
        return float((hundred["cpu_s"] / (100 * 100)) / (ten["cpu_s"] / (600 * 10)))

    ratio = growth(short, long) / growth(short_floor, long_floor)
    return [("CPU per turn, 100 turns against 10, over the floor's", ratio, 1.2, "x")]


def large_input(rounds: int) -> list[tuple[str, float, float, str]]:
    grown = run_json([sys.executable, str(HERE / "large_input.py")])["growth_bytes"] / 1e6
    return [("1,000,000 rows: memory growth from row 1,000 to 20,000", grown, 30, "MB")]


def tokens(rounds: int) -> list[tuple[str, float, float, str]]:
    floor, product = pair(rounds, turns=29, rollouts=40, concurrency=8, tokens=2000)
    _, half = pair(1, turns=14, rollouts=20, concurrency=8, tokens=2000)
    return [
        ("30 turns, 60,000 tokens: CPU against the floor", product["cpu_s"] / floor["cpu_s"], 3, "x"),
        ("stored record, 30 turns against 15", product["row_bytes"] / half["row_bytes"], 2.2, "x"),
    ]


def conversion(rounds: int) -> list[tuple[str, float, float, str]]:
    times = run_json([sys.executable, str(HERE / "conversion.py")])
    return [("100 items to Chat and back", times["both_ways_s"] * 1000, 1, "ms")]


def endpoints(rounds: int) -> list[tuple[str, float, float, str]]:
    """Four endpoints of which one is five times slower, against the three fast ones alone."""

    def wall(delays: list[float]) -> float:
        with contextlib.ExitStack() as stack:
            urls = ",".join(stack.enter_context(stub_server(turns=1, delay=delay)) for delay in delays)
            words = ["--url", urls, "--rollouts", "2000", "--concurrency", "64"]
            return min(run_json([sys.executable, str(HERE / "product.py"), *words])["wall_s"] for _ in range(rounds))

    lost = wall([0.1, 0.1, 0.1, 0.5]) / wall([0.1, 0.1, 0.1])
    died = run_json([sys.executable, str(HERE / "dying_endpoint.py")])["failed_runs"]
    return [
        ("4 endpoints, one 5 x slower: wall against the three alone", lost, 1 / 0.95, "x"),
        ("an endpoint dies in the middle: runs with a failed rollout", died, 0, ""),
    ]


def start_up(rounds: int) -> list[tuple[str, float, float, str]]:
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
            ("ludus --help", best("--help"), 0.4, "s"),
            ("first rollout with a scripted model", best(*first, "--output", f"{folder}/out", "--overwrite"), 1.0, "s"),
        ]


CASES: dict[str, Case] = {
    "overhead": overhead,
    "in_flight": in_flight,
    "long_rollouts": long_rollouts,
    "large_input": large_input,
    "tokens": tokens,
    "conversion": conversion,
    "endpoints": endpoints,
    "start_up": start_up,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"default: all of {', '.join(CASES)}")
    parser.add_argument("--rounds", type=int, default=5, help="how often floor and product take turns")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "bench.json")
    options = parser.parse_args()
    table = Table("case", "measured", "must reach", "")
    results = []
    for name in options.cases or CASES:
        print(f"measuring {name} ...", file=sys.stderr)
        for title, value, bound, unit in CASES[name](options.rounds):
            table.add_row(
                title, f"{value:.2f} {unit}", f"at most {bound:g} {unit}", "ok" if value <= bound else "MISSED"
            )
            results.append({"case": title, "measured": value, "at_most": bound, "unit": unit})
    Console().print(table)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(results, indent=2) + "\n")
    print(f"written to {options.output}")


if __name__ == "__main__":
    main()
