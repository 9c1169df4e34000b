"""Programs that run for an hour: what is kept of their output, and how they are ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from sandboxes import kinds, needs, opened
from waiting import until_async

from ludus.sandbox import Sandbox, SandboxError

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=kinds())
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    async with opened(request.param) as found:
        yield found


@pytest.mark.parametrize("last", [1, 10, 999, 65_536, 100_000])
async def test_the_last_bytes_of_stdout_and_stderr_are_kept(sandbox: Sandbox, last: int):
    written = "import sys\nfor n in range(30_000): print(n, file=(sys.stdout, sys.stderr)[n % 2])"
    result = await sandbox.exec(["python3", "-c", written], last_bytes=last)
    for stream, first in ((result.stdout, 0), (result.stderr, 1)):
        everything = "".join(f"{number}\n" for number in range(first, 30_000, 2)).encode()
        assert stream == everything[-last:]
    assert result.output_cut == (last < len(everything))


async def test_a_program_is_not_stopped_for_its_output_if_only_the_last_of_it_is_kept(sandbox: Sandbox):
    result = await sandbox.exec("yes | head -c 70000000; echo; echo end", last_bytes=4, timeout=120)
    assert (result.stdout, result.limit, result.exit_code) == (b"end\n", None, 0)


async def test_a_stopped_program_ends_with_all_that_it_started_and_the_sandbox_goes_on(sandbox: Sandbox):
    stop = asyncio.Event()
    running = asyncio.create_task(
        sandbox.exec("(setsid sleep 1234 &); echo started; sleep 1234", timeout=3600, stop=stop, last_bytes=100)
    )
    await asyncio.sleep(0)
    stop.set()
    result = await running
    assert (result.limit, result.why, result.ok) == ("stopped", "stopped by us", False)
    assert (await sandbox.exec("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '; echo on")).text.count("1234") == 0


async def test_a_stop_after_the_end_of_its_program_does_not_stop_the_next_one(sandbox: Sandbox):
    for _ in range(20):
        stop = asyncio.Event()
        first = asyncio.create_task(sandbox.exec("true", stop=stop))
        second = asyncio.create_task(sandbox.exec("echo second"))
        await until_async(first.done, every=0)
        stop.set()
        assert (await second).text == "second\n"


@needs("bubblewrap")
async def test_a_call_beside_a_long_program_fails_at_once_and_the_sandbox_goes_on():
    async with opened("bubblewrap") as sandbox:
        stop = asyncio.Event()
        running = asyncio.create_task(sandbox.exec("sleep 1234", timeout=3600, stop=stop, last_bytes=100))
        await asyncio.sleep(0)
        with pytest.raises(SandboxError, match="runs the agent's program"):
            await sandbox.exec("true")
        stop.set()
        assert (await running).limit == "stopped"
        assert (await sandbox.exec("echo on")).text == "on\n"


@needs("bubblewrap")
async def test_calls_that_wait_for_their_turn_end_when_the_sandbox_closes():
    async with opened("bubblewrap") as sandbox:
        calls = [asyncio.create_task(sandbox.exec("sleep 1234", timeout=3600)) for _ in range(3)]
        await asyncio.sleep(0)
        await sandbox.close()
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(result) for result in results} == {SandboxError}
