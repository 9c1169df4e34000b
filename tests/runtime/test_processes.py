"""Work in child processes: results come back, hanging calls are stopped, and no child is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import math
import operator
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from waiting import until, until_async, until_gone

from ludus import Failure
from ludus.runtime import processes
from ludus.runtime.boundary import step, together
from ludus.runtime.deadline import Deadline
from ludus.runtime.processes import OutOfTime, ProcessPool, in_process, shared_pool

#: Backtracks for years inside C code, which neither a thread nor a signal handler can interrupt.
ENDLESS = ("(a+)+$", "a" * 60 + "b")

#: Seconds in which even a busy machine adds two numbers, and for which a test can wait.
LIMIT = 2.0


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


@pytest.fixture
def started() -> Callable[[], set[int]]:
    """A function that tells which children this test has, and not those that others left behind."""
    before = children()
    return lambda: children() - before


class Gate:
    """A call in a child that runs until the test lets it end: it reads a pipe to which nobody has written yet."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "gate"
        os.mkfifo(self.path)

    def call(self, pool: ProcessPool) -> asyncio.Task[str]:
        return asyncio.create_task(pool.run(Path.read_text, self.path, timeout=3600.0))

    async def reached(self) -> Any:
        """Wait until the call runs; closing what this returns lets it end."""
        opened: list[Any] = []
        await until_async(lambda: opened or self._open(opened))
        return opened[0]

    def _open(self, opened: list[Any]) -> None:
        with contextlib.suppress(OSError):  # nobody reads yet
            opened.append(os.fdopen(os.open(self.path, os.O_WRONLY | os.O_NONBLOCK), "w"))


def author_module(folder: Path, source: str) -> Any:
    """A module loaded from a file, like an environment's, which a child cannot import by name."""
    path = folder / "checks.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("checks_of_an_author", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["checks_of_an_author"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_results_and_exceptions_come_back_from_the_child() -> None:
    async with ProcessPool(1) as pool:
        assert await pool.run(operator.add, [1], ["\ud800"]) == [1, "\ud800"]
        assert len(await pool.run(operator.mul, "x", 5_000_000)) == 5_000_000
        assert await pool.run(len, "y" * 5_000_000) == 5_000_000
        with pytest.raises(ValueError, match="factorial") as raised:
            await pool.run(math.factorial, -1)
        assert "In a child process" in raised.value.__notes__[0]
        pids = {await pool.run(os.getpid) for _ in range(5)}
        assert len(pids) == 1
        assert os.getpid() not in pids


@pytest.mark.parametrize("size", [0, 1, 5_000_000])
async def test_buffers_travel_beside_the_pickle(size: int) -> None:
    """To the child, and back in what it returns."""
    async with ProcessPool(1) as pool:
        for given in (b"a" * size, bytearray(b"b" * size)):
            assert await pool.run(bytes, pickle.PickleBuffer(given)) == given
            assert await pool.run(pickle.PickleBuffer, given) == given


async def test_functions_of_a_module_loaded_from_a_file_run_in_a_child(tmp_path: Path) -> None:
    module = author_module(
        tmp_path,
        "class Odd(Exception):\n    def __init__(self, a, b): super().__init__(a)\n"
        "def double(x): return 2 * x\n"
        "def unlike(): raise Odd(1, 2)\n"
        "def leave(): raise SystemExit(3)\n"
        "def noisy():\n    print('x' * 10**6, flush=True)\n    import sys, os\n"
        "    sys.stderr.write('x'); os.write(1, b'x' * 10**6); os.write(2, b'x'); return input\n"
        "def read(): return __import__('sys').stdin.read()\n",
    )
    async with ProcessPool(1) as pool:
        assert await pool.run(module.double, 4) == 8
        assert await pool.run(module.noisy) is input
        assert await pool.run(module.read) == ""
        for function, message in [(module.unlike, "Odd: 1"), (module.leave, "SystemExit: 3")]:
            with pytest.raises(RuntimeError, match=message):
                await pool.run(function)
        assert await pool.run(module.double, 5) == 10


async def test_a_lambda_is_refused_with_a_hint_and_starts_no_child(started: Callable[[], set[int]]) -> None:
    async with ProcessPool(1) as pool:
        with pytest.raises(TypeError, match="define it at the top of an importable module"):
            await pool.run(lambda: 1)
    assert not started()


async def test_a_call_that_hangs_is_stopped_and_its_child_replaced() -> None:
    async with ProcessPool(1) as pool:
        before = await pool.run(os.getpid)
        cases: list[tuple[Any, Any]] = [(time.sleep, (60,)), (re.match, ENDLESS)]
        for function, args in cases:
            with pytest.raises(TimeoutError, match=rf"{function.__name__} was stopped after 0.2 s"):
                await pool.run(function, *args, timeout=0.2)
        assert await pool.run(os.getpid) != before


async def test_the_cpu_limit_stops_a_busy_call_and_not_a_sleeping_one() -> None:
    async with ProcessPool(1) as pool:
        with pytest.raises(OutOfTime, match="match was stopped after 0.2 s of processor time"):
            await pool.run(re.match, *ENDLESS, cpu_seconds=0.2)
        await pool.run(time.sleep, 0.3, cpu_seconds=0.2)
        assert await pool.run(operator.add, 1, 2) == 3


async def test_a_cancelled_call_ends_its_child() -> None:
    async with ProcessPool(1) as pool:
        pid = await pool.run(os.getpid)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(pool.run(re.match, *ENDLESS), 0.2)
        until_gone(pid)
        assert await pool.run(operator.add, 1, 2) == 3


@pytest.mark.parametrize(
    ("function", "args", "how"),
    [
        (os._exit, (3,), "exit code 3"),
        (signal.raise_signal, (signal.SIGSEGV,), "signal 11"),
        (os.closerange, (3, 64), "signal 9"),
    ],
)
async def test_a_child_that_dies_fails_its_own_call_only(function: Any, args: Any, how: str, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    async with ProcessPool(2) as pool:
        other = gate.call(pool)
        with await gate.reached(), pytest.raises(Failure, match=how) as raised:
            await pool.run(function, *args)
        assert raised.value.kind == "crash"
        assert await other == ""
        assert await pool.run(operator.add, 1, 2) == 3


async def test_a_child_that_died_while_idle_is_replaced() -> None:
    async with ProcessPool(1) as pool:
        os.kill(await pool.run(os.getpid), signal.SIGKILL)
        await until_async(lambda: pool._idle[0].gone)
        assert await pool.run(operator.add, 1, 2) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts what a process allocates")
async def test_a_child_has_a_memory_limit() -> None:
    async with ProcessPool(1, memory=256 << 20) as pool:
        with pytest.raises(MemoryError):
            await pool.run(operator.mul, "x", 1 << 30)
        assert await pool.run(operator.add, 1, 2) == 3


async def test_queued_calls_run_in_order_and_waiting_does_not_count_against_their_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[str] = []
    ask = processes._Child.ask  # a call's time begins here

    async def noted(child: Any, what: str, *request: Any) -> bytearray:
        log.append("asked")
        answer = await ask(child, what, *request)
        log.append("answered")
        return answer

    async def call(number: int) -> None:
        assert await pool.run(operator.neg, number) == -number
        log.append(f"done {number}")

    monkeypatch.setattr(processes._Child, "ask", noted)
    async with ProcessPool(1) as pool:
        await asyncio.gather(*(call(number) for number in range(20)))
    assert [each for each in log if each.startswith("done")] == [f"done {number}" for number in range(20)]
    assert [each for each in log if not each.startswith("done")] == ["asked", "answered"] * 21, "20, and an import"


async def test_the_event_loop_stays_responsive_while_64_calls_hang(started: Callable[[], set[int]]) -> None:
    async with ProcessPool() as pool:
        calls = [asyncio.create_task(pool.run(re.match, *ENDLESS, timeout=3600.0)) for _ in range(64)]
        await until_async(lambda: len(started()) == pool.workers)
        busy = started()
        await until_async(lambda: all(psutil.Process(pid).cpu_times().user > 0.5 for pid in busy))
        for _ in range(100):  # a call on the loop would hold it for years
            await asyncio.sleep(0.005)
        assert started() == busy
        assert not any(call.done() for call in calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    until_gone(*busy)


async def test_closing_the_pool_ends_running_calls_and_children(
    tmp_path: Path, started: Callable[[], set[int]]
) -> None:
    gate, pool = Gate(tmp_path), ProcessPool(2)
    call = gate.call(pool)
    with await gate.reached():
        assert started()
        await pool.close()
        assert not started()
    with pytest.raises(Failure, match="closed while Path.read_text ran"):
        await call
    with pytest.raises(RuntimeError, match="is closed"):
        await pool.run(os.getpid)


#: Functions that say when they run in a child, for the program below.
WORK = """
import os, re, time
from pathlib import Path

def begin():
    Path(f"began-{os.getpid()}").touch()

def sleep():
    begin()
    time.sleep(600)

def burn():
    begin()
    re.match("(a+)+$", "a" * 60 + "b")
"""
PROGRAM = """
import asyncio, sys, work
from ludus.runtime.processes import ProcessPool

async def main():
    async with ProcessPool(2) as pool:
        await asyncio.gather(*(pool.run(getattr(work, sys.argv[1])) for _ in range(2)))
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.parametrize("work", ["sleep", "burn", "begin"])
def test_children_exit_when_their_parent_is_killed(work: str, tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(WORK)
    with subprocess.Popen([sys.executable, "-c", PROGRAM, work], cwd=tmp_path) as parent:
        until(lambda: len(list(tmp_path.glob("began-*"))) == 2 or parent.poll() is not None)
        running = psutil.Process(parent.pid).children()
        if work == "burn":  # long enough to be in the middle of it
            until(lambda: all(child.cpu_times().user > 0.5 for child in running))
        parent.kill()
    pids = {child.pid for child in running}
    assert pids == {int(path.name.partition("-")[2]) for path in tmp_path.glob("began-*")}
    assert len(pids) == 2
    until_gone(*pids)


async def test_there_is_one_shared_pool_and_it_closes_with_its_last_user(started: Callable[[], set[int]]) -> None:
    async with shared_pool() as pool:
        pid = await in_process(os.getpid)
        assert await pool.run(os.getpid) == pid
        assert await in_process(os.getpid) == pid
    assert not started()
    assert await in_process(operator.add, 1, 2) == 3
    assert not started()


async def test_waiting_for_a_child_does_not_count_against_the_limit_of_a_step(tmp_path: Path) -> None:
    """One step holds the only child for longer than the limit of the other, which waits for it all that time."""
    gate = Gate(tmp_path)
    async with ProcessPool(1) as pool:
        await pool.run(operator.add, 1, 2)
        holding = gate.call(pool)
        end = await gate.reached()
        waiting = asyncio.create_task(step("verify", LIMIT, pool.run(operator.add, 1, 2)))
        inside = asyncio.create_task(step("verify", LIMIT, step("tool", LIMIT, pool.run(operator.add, 1, 2))))
        at_once = asyncio.create_task(
            step("tool", LIMIT, together([pool.run(operator.add, 1, each) for each in (2, 3)]))
        )
        late = asyncio.create_task(step("verify", LIMIT, asyncio.sleep(60)))
        with pytest.raises(Failure, match="timed out"):
            await late  # all began before this one, and only this one is late
        assert not any(task.done() for task in (waiting, inside, at_once))
        end.close()
        assert (await waiting, await inside, await at_once) == (3, 3, [3, 4])
        assert await holding == ""


async def test_a_step_that_waited_for_a_child_still_has_its_limit_afterwards(tmp_path: Path) -> None:
    gate = Gate(tmp_path)

    async def compute_and_hang(pool: ProcessPool) -> None:
        await pool.run(operator.add, 1, 2)
        await asyncio.sleep(3600)

    async with ProcessPool(1) as pool:
        holding = gate.call(pool)
        end = await gate.reached()
        hanging = asyncio.create_task(step("verify", 0.2, compute_and_hang(pool)))
        end.close()
        with pytest.raises(Failure, match=r"timed out after 0\.2 s"):
            await hanging
        await holding


async def test_the_whole_rollout_does_not_time_out_while_it_waits_for_a_child(tmp_path: Path) -> None:
    gate = Gate(tmp_path)

    async def rollout(pool: ProcessPool) -> int:
        deadline = Deadline(whole=LIMIT, shortest=LIMIT / 2)
        deadline.start()
        found = await step("tool", LIMIT / 2, pool.run(operator.add, 1, 2), deadline=deadline)
        found += await step("verify", LIMIT / 2, pool.run(operator.add, 1, 2), deadline=deadline)
        deadline.stop()
        return found

    async with ProcessPool(1) as pool:
        await pool.run(operator.add, 1, 2)
        holding = gate.call(pool)
        end = await gate.reached()
        playing = asyncio.create_task(rollout(pool))
        with pytest.raises(Failure):
            await step("verify", LIMIT, asyncio.sleep(60))
        end.close()
        assert await playing == 6
        await holding


async def test_calls_are_served_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    """So a call waits for the limits of the calls before it, and for no others."""
    gate, served = Gate(tmp_path), []

    async def call(pool: ProcessPool, number: int) -> None:
        served.append(await pool.run(operator.add, number, 0))

    async with ProcessPool(1) as pool:
        holding = gate.call(pool)
        end = await gate.reached()
        calls = [asyncio.create_task(call(pool, number)) for number in range(20)]
        end.close()
        await asyncio.gather(holding, *calls)
    assert served == list(range(20))


@pytest.mark.slow
async def test_64_endless_calls_keep_64_quick_calls_waiting_but_none_from_its_result() -> None:
    """The queue takes longer than the limit of each step."""
    async with ProcessPool(2) as pool:

        def judged(function: Any, *args: Any) -> Any:
            return step("verify", LIMIT, pool.run(function, *args, cpu_seconds=0.1))

        calls = [call for _ in range(64) for call in (judged(re.match, *ENDLESS), judged(operator.add, 3, 4))]
        found = await asyncio.gather(*calls, return_exceptions=True)
    assert found[1::2] == [7] * 64
    assert all(isinstance(each, Failure) and each.kind == "timeout" for each in found[::2])  # whichever clock ends it
