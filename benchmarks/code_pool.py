"""Programs judged by code_gen in sandboxes, against bare pools of two processes that run the same programs unprotected.

python benchmarks/code_pool.py --submissions 200

`bare` starts a Python for each test, as `subprocess.run([python, file], input=...)`. `in_process` runs each test with
`exec` in its worker: no limit, no isolation, and whatever a program breaks stays broken. All three compare outputs in
the same way, alternate, and the best round of each counts.
"""

import argparse
import asyncio
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from ludus import Response
from ludus.environments.code_gen.outputs import same_output
from ludus.response import message
from ludus.testing import configured

WORKERS = 2
PROGRAM = """import sys
from collections import Counter

def primes(limit):
    sieve = bytearray([1]) * (limit + 1)
    sieve[:2] = b"\\0\\0"
    for number in range(2, int(limit**0.5) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(sieve[number * number :: number]))
    return [number for number in range(limit + 1) if sieve[number]]

limit, offset = map(int, sys.stdin.readline().split())
found = primes(limit)
digits = Counter(str(sum(found) + offset))
print(len(found), sum(found) + offset)
print(digits.most_common(1)[0][1])
"""

Tests = list[tuple[str, str]]


def submissions(count: int, tests: int) -> list[tuple[str, Tests]]:
    """Programs that differ, and their tests."""
    made = []
    for number in range(count):
        inputs = [f"{2000 + 37 * test} {number}\n" for test in range(tests)]
        made.append((f"{PROGRAM}# {number}\n", [(given, expected(given)) for given in inputs]))
    return made


def expected(given: str) -> str:
    """What the program prints."""
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        sys.stdin = io.StringIO(given)
        exec(PROGRAM, {"__name__": "__main__"})
    sys.stdin = sys.__stdin__
    return written.getvalue()


def bare(program: str, tests: Tests) -> bool:
    """One submission with an interpreter for each test."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(program)
        file.flush()
        for given, wanted in tests:
            run = subprocess.run([sys.executable, file.name], input=given, capture_output=True, text=True, check=False)
            if run.returncode or not same_output(wanted, run.stdout):
                return False
    return True


def in_process(program: str, tests: Tests) -> bool:
    """One submission with `exec` in this process."""
    for given, wanted in tests:
        written = io.StringIO()
        sys.stdin = io.StringIO(given)
        with contextlib.redirect_stdout(written):
            exec(compile(program, "main.py", "exec"), {"__name__": "__main__"})
        if not same_output(wanted, written.getvalue()):
            return False
    return True


def pooled(judge: Any, work: list[tuple[str, Tests]]) -> float:
    """The seconds that a pool takes for all submissions."""
    with ProcessPoolExecutor(WORKERS) as pool:
        list(pool.map(abs, range(WORKERS)))
        began = time.perf_counter()
        assert all(pool.map(judge, *zip(*work, strict=True), chunksize=1))
        return time.perf_counter() - began


async def ours(work: list[tuple[str, Tests]]) -> float:
    """The seconds that code_gen takes for all submissions, with as many in flight as the sandboxes run at once."""
    environment = configured("code_gen", {})
    queue = iter(work)
    async with environment.share() as shared:

        async def worker() -> None:
            for program, tests in queue:
                unit_tests = {"inputs": [given for given, _ in tests], "outputs": [wanted for _, wanted in tests]}
                row = {"responses_create_params": {"input": "x"}, "verifier_metadata": {"unit_tests": unit_tests}}
                task, session = environment.task(row), environment.session(shared)
                await session.open(task)
                verdict: Any = await session.verify(task, Response.of(message(f"```python\n{program}\n```")))
                await session.close()
                assert verdict.reward == 1.0, verdict

        warm, queue = list(work[:4]), iter(work[:4])
        await asyncio.gather(*(worker() for _ in warm))
        queue = iter(work)
        began = time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(2 * WORKERS)))
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--submissions", type=int, default=1000)
    parser.add_argument("--tests", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    work = submissions(options.submissions, options.tests)
    times: dict[str, list[float]] = {"bare": [], "in_process": [], "ours": []}
    for _ in range(options.rounds):
        times["bare"].append(pooled(bare, work))
        times["ours"].append(asyncio.run(ours(work)))
        times["in_process"].append(pooled(in_process, work))
    best = {f"{name}_s": round(min(each), 3) for name, each in times.items()}
    ratios = {"ratio": best["bare_s"] / best["ours_s"], "ratio_in_process": best["in_process_s"] / best["ours_s"]}
    print(json.dumps({"submissions": len(work), "tests": options.tests, **best, **ratios, "cpus": os.cpu_count()}))


if __name__ == "__main__":
    main()
