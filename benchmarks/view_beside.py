"""What a collection pays for being watched: its CPU time with `ludus view` beside it, against its CPU time alone.

    python benchmarks/view_beside.py [--rollouts 30000] [--rounds 5]

Each collection is a process of its own with a model that answers at once, so nothing hides what it pays. It takes long
enough for the viewer to find it, which is open on the folder before it begins; a client asks what an open page asks.
The two alternate. `more` is the median of what a collection needed more than the one before it, because other load on
the machine changes from minute to minute. `indexed` is the share of the run that the viewer had indexed at its end.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from view_run import Client

LOOK_EVERY = 1.5  # as the page does


@contextmanager
def watching(folder: Path) -> Iterator[list[float]]:
    """A viewer with an open page: whatever has changed is loaded again. Yields what is filled with `indexed`."""
    command = [sys.executable, "-m", "ludus", "view", str(folder), "--json"]
    ended, indexed = threading.Event(), list[float]()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            client = Client(json.loads(server.stdout.readline())["link"])

            def look() -> None:
                seen = ""
                while not ended.wait(LOOK_EVERY):
                    changes = json.loads(client.get("/api/changes"))["runs"]
                    if (now := json.dumps(changes)) != seen:
                        seen = now
                        client.get("/api/runs")
                        for run in changes:
                            client.get(f"/api/run?run={run}")

            page = threading.Thread(target=look)
            page.start()
            yield indexed
            progress = json.loads(client.get("/api/runs"))["runs"][0]["index"]
            indexed.append(progress["facts"] / progress["bytes"])
            ended.set()
            page.join()
        finally:
            ended.set()
            server.terminate()


def collect(folder: Path, rollouts: int) -> float:
    """The CPU seconds of one collection."""
    folder.parent.mkdir(exist_ok=True)
    script = folder.parent / "script.yaml"
    script.write_text("- {call: increment_counter, arguments: {count: 3}}\n- done\n")
    repeats = str(rollouts // 5)
    command = [sys.executable, "-m", "ludus", "collect", "example_session_state_mgmt", "--repeats", repeats]
    command += ["--limit", "5", "--model", f"scripted:{script}", "--output", str(folder), "--overwrite"]
    before = os.times()
    subprocess.run(command, check=True, capture_output=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    alone, beside, indexed = list[float](), list[float](), list[float]()
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as scratch:
        for number in range(given.rounds):
            alone.append(collect(Path(scratch) / f"alone-{number}" / "run", given.rollouts))
            watched = Path(scratch) / f"watched-{number}" / "run"
            watched.parent.mkdir()
            with watching(watched.parent) as done:
                beside.append(collect(watched, given.rollouts))
            indexed += done
    more = statistics.median(watched / unwatched - 1 for watched, unwatched in zip(beside, alone, strict=True))
    print(json.dumps({"alone_s": alone, "beside_s": beside, "more": more, "indexed": min(indexed)}))


if __name__ == "__main__":
    main()
