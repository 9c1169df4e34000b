"""The same job in Ludus, verifiers and Inspect: single-turn rollouts with an exact-match verifier.

    python benchmarks/frameworks.py --verifiers VENV/bin/python --inspect VENV/bin/python --output frameworks.json

Every framework runs in a process and a virtual environment of its own, asks the same stub server on loopback and has
the same concurrency. Figures: CPU of the collecting process and its children for each rollout, peak memory, CPU seconds
of the start, and seconds from the start of the process to the first model call. Two behaviours are played: every tenth
task gets only answers with status 500, and the process is killed (SIGKILL) halfway and resumed. Without the path of a
framework's Python, the script leaves the framework out and says how to install it. NeMo Gym is not played: it needs
Python 3.13.14 and a Ray cluster.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

JOBS = Path(__file__).parent / "framework_jobs"
INSTALL = {
    "verifiers": "pip install verifiers==0.4.0",
    "inspect": "pip install inspect-ai openai",
}


@contextmanager
def stub(**flags: float) -> Iterator[str]:
    """Run the stub server in a process of its own and yield its URL."""
    words = [part for name, value in flags.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    process = subprocess.Popen([sys.executable, str(JOBS / "stub.py"), *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def stats(url: str) -> dict[str, Any]:
    """What the stub has counted."""
    with urllib.request.urlopen(f"{url}/stats") as answer:
        counted: dict[str, Any] = json.load(answer)
    return counted


class Job:
    """One framework's job in a process group of its own."""

    def __init__(self, name: str, python: str, url: str, rollouts: int, concurrency: int, output: Path) -> None:
        self._words = [python, str(JOBS / f"{name}_job.py"), "--url", f"{url}/v1", "--rollouts", str(rollouts)]
        self._words += ["--concurrency", str(concurrency), "--output", str(output)]
        self._environment = dict(os.environ)
        if name != "ludus":
            self._environment.pop("PYTHONPATH", None)

    def start(self, *more: str) -> "subprocess.Popen[str]":
        """Start the job; its report is the last line that it prints."""
        return subprocess.Popen(
            [*self._words, *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            env=self._environment,
        )

    def run(self, timeout_s: float, *more: str) -> dict[str, Any]:
        """Run the job to its end and return its report, or why there is none."""
        started = time.time()
        process = self.start(*more)
        try:
            printed, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            kill(process)
            return {"crash": f"no end within {timeout_s:.0f} s"}
        lines = printed.strip().splitlines()
        if process.returncode != 0 or not lines:
            return {"crash": f"exit status {process.returncode}"}
        return {**json.loads(lines[-1]), "started": started}


def kill(process: "subprocess.Popen[str]") -> None:
    """SIGKILL to the job and its children."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def cost(name: str, python: str, given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """CPU, memory and start: the best of `--tries` runs."""
    tries = []
    for number in range(given.tries):
        with stub() as url:
            job = Job(name, python, url, given.rollouts, given.concurrency, folder / f"{name}-{number}")
            report = job.run(given.timeout)
            if "crash" in report:
                return report
            report["first_s"] = stats(url)["first"] - report["started"]
        tries.append(report)
    return {
        "cpu_ms_per_rollout": 1000 * min(report["cpu_s"] for report in tries) / given.rollouts,
        "peak_mb": min(report["peak_mb"] for report in tries),
        "start_cpu_s": min(report["start_cpu_s"] for report in tries),
        "first_s": min(report["first_s"] for report in tries),
        "mean_reward": tries[0]["mean_reward"],
    }


def failing(name: str, python: str, given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Every tenth task gets only answers with status 500."""
    with stub(fail_every=10) as url:
        return Job(name, python, url, 30, 10, folder / f"{name}-failing").run(given.timeout)


def killed(name: str, python: str, given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """SIGKILL after half of the answers, then the framework's way to resume."""
    rollouts = 60
    with stub(delay=0.3) as url:
        job = Job(name, python, url, rollouts, 5, folder / f"{name}-killed")
        process = job.start()
        until = time.monotonic() + given.timeout
        while stats(url)["answers"] < rollouts // 2 and process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        kill(process)
        answers = stats(url)["answers"]
        report = job.run(given.timeout, "--resume")
        return {**report, "rollouts": rollouts, "answers_before": answers, "asked_again": stats(url)["repeated"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verifiers", metavar="PYTHON", help="the Python of an environment with verifiers")
    parser.add_argument("--inspect", metavar="PYTHON", help="the Python of an environment with Inspect")
    parser.add_argument("--rollouts", type=int, default=300)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for one run of a job")
    parser.add_argument("--output", type=Path, help="write all figures as JSON")
    given = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("ludus", "verifiers", "inspect"):
            python = sys.executable if name == "ludus" else getattr(given, name)
            if python is None or not Path(python).exists():
                print(f"{name}: left out. In a new virtual environment: {INSTALL[name]}; then --{name} VENV/bin/python")
                continue
            found[name] = {part.__name__: part(name, python, given, Path(folder)) for part in (cost, failing, killed)}
            print(name, json.dumps(found[name]), flush=True)
            if given.output:
                given.output.write_text(json.dumps(found, indent=2) + "\n")
    print("NeMo Gym: left out. It needs Python 3.13.14 and Ray; compare the figures in docs/about/performance.md")


if __name__ == "__main__":
    main()
