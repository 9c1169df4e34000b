"""What a collection pays for being watched: its CPU time with `ludus view` beside it, against its CPU time alone.

    python benchmarks/view_beside.py [--rollouts 6000] [--rounds 3]

Each collection is a process of its own with a model that answers at once, so nothing hides what it pays. The viewer is
open on the folder before the collection begins, and a client asks what an open page asks. The two alternate and the
best of each counts, because other load on the machine only makes a run slower.
"""

import argparse
import json
import os
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
def watching(folder: Path) -> Iterator[None]:
    """A viewer with an open page: whatever has changed is loaded again."""
    command = [sys.executable, "-m", "ludus", "view", str(folder), "--json"]
    ended = threading.Event()
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
            yield
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
    parser.add_argument("--rollouts", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    alone, beside = list[float](), list[float]()
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as scratch:
        for number in range(given.rounds):
            alone.append(collect(Path(scratch) / "alone" / str(number), given.rollouts))
            watched = Path(scratch) / "watched" / str(number)
            watched.parent.mkdir(exist_ok=True)
            with watching(watched.parent):
                beside.append(collect(watched, given.rollouts))
    print(json.dumps({"alone_s": min(alone), "beside_s": min(beside), "more": min(beside) / min(alone) - 1}))


if __name__ == "__main__":
    main()
