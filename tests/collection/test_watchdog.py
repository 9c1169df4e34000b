# ruff: noqa: ASYNC251 (blocking the event loop is what these tests are about)
"""Code that blocks the event loop is found and named: stage, environment, file and function."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from contextlib import asynccontextmanager

import forked
import orjson
import pytest
from waiting import CEILING

import ludus
from ludus import Agent, Environment, Resources, ScriptedModel, tool
from ludus.collection import watchdog

ROW = {"responses_create_params": {"input": "hi"}}
#: Seconds that a planted call blocks. The watchdog sees a call that it meets twice, which takes 0.2 s at most.
BLOCK = 1.0


def doze():
    time.sleep(BLOCK)


class Patient(Resources):
    """Blocks nothing."""

    async def verify(self, task, response):
        await asyncio.sleep(0)
        return 1.0


class BlocksInVerify(Resources):
    async def verify(self, task, response):
        doze()
        return 1.0


class BlocksInOpen(Patient):
    async def open(self, task):
        time.sleep(BLOCK)


class BlocksInTool(Patient):
    @tool
    async def wait(self) -> str:
        """Wait."""
        time.sleep(BLOCK)
        return "done"


class BlocksInGroup(Resources):
    async def verify_group(self, task, responses):
        time.sleep(BLOCK)
        return [1.0 for _ in responses]


class BlocksInShare(Patient):
    @classmethod
    @asynccontextmanager
    async def share(cls, config):
        time.sleep(BLOCK)
        yield None


class Computes(Resources):
    async def verify(self, task, response):
        end = time.perf_counter() + BLOCK
        while time.perf_counter() < end:
            sum(range(1000))
        return 1.0


class Impatient(Agent):
    async def act(self, episode):
        await episode.ask()
        time.sleep(BLOCK)
        return "completed"


def blocking(kind, model, function):
    """A collection and what its watchdog says about a function. On a busy machine the watchdog may miss one block."""
    for _ in range(20):
        result = ludus.collect(kind, model=model, input=[ROW])
        for call in result.metrics["loop"]["blocked"]:
            if call["function"] == function:
                return result, call
    raise AssertionError(f"{function} was not seen")


CALL = {"call": "wait", "arguments": {}}
TWO_CALLS = {"calls": [{"name": "wait"}, {"name": "wait"}]}


@pytest.mark.parametrize(
    ("kind", "script", "stage", "function"),
    [
        (BlocksInVerify, ["x"], "verify", "test_watchdog.py in doze"),
        (BlocksInOpen, ["x"], "open", "test_watchdog.py in open"),
        (BlocksInTool, [CALL, "x"], "tool", "test_watchdog.py in wait"),
        (BlocksInTool, [TWO_CALLS, "x"], "tool", "test_watchdog.py in wait"),
        (BlocksInGroup, ["x"], "verify", "test_watchdog.py in verify_group"),
        (Computes, ["x"], "verify", "test_watchdog.py in verify"),
    ],
)
def test_a_blocking_async_def_is_named_with_stage_environment_and_function(kind, script, stage, function):
    result, found = blocking(kind, ScriptedModel(script), function)
    assert (found["environment"], found["stage"]) == (kind.__name__, stage)
    assert found["seconds"] > 0
    assert result.metrics["loop"]["lag"]["max"] > 0
    (warning,) = [each for each in result.warnings if function.partition(" in ")[2] in each]
    assert warning.startswith(f"{stage} of {kind.__name__} blocked the event loop for ")
    assert f"test_watchdog.py:{found['line']} in " in warning


def test_loading_in_share_before_the_first_rollout_is_counted_and_is_no_warning():
    result, found = blocking(BlocksInShare, ScriptedModel(["x"]), "test_watchdog.py in share")
    assert (found["environment"], found["stage"]) == ("BlocksInShare", "share")
    assert result.warnings == []


def test_an_agent_that_blocks_after_its_model_call_is_named_and_not_the_model():
    environment = Environment.load(Patient)
    environment.agent = Impatient()
    _, found = blocking(environment, ScriptedModel(["x"]), "test_watchdog.py in act")
    assert found["stage"] == "agent"


def test_a_model_in_this_process_that_blocks_is_named_as_the_model():
    async def respond(request):
        time.sleep(BLOCK)
        return "x"

    _, found = blocking(Patient, ScriptedModel(respond), "test_watchdog.py in respond")
    assert (found["environment"], found["stage"]) == ("Patient", "model")


def test_code_that_awaits_or_runs_on_a_thread_is_not_reported():
    released = threading.Event()

    class Plain(Resources):
        def verify(self, task, response):
            released.wait(BLOCK)
            return 1.0

    class Awaits(Resources):
        async def verify(self, task, response):
            await asyncio.sleep(BLOCK)
            return 1.0

    for kind in (Plain, Awaits):
        result = ludus.collect(kind, model=ScriptedModel(["x"]), input=[ROW])
        assert [call for call in result.metrics["loop"]["blocked"] if call["stage"] == "verify"] == []


def test_many_calls_that_keep_the_loop_busy_are_not_blamed_for_its_lag(monkeypatch):
    """Each call lasts until the watchdog has looked once, and the next look comes when the next call has begun."""
    total, begun, next_began, looked = 8, 0, threading.Event(), threading.Event()
    real = watchdog._look

    class Short(Resources):
        async def verify(self, task, response):
            nonlocal begun
            begun += 1
            looked.clear()
            next_began.set()
            if begun < total:
                looked.wait(CEILING)
            return 1.0

    def look(frame):
        next_began.clear()
        found = real(frame)
        if found is not None and found.call.stage == "verify" and begun < total:
            seen.append(found.frame)
            looked.set()
            next_began.wait(CEILING)
        return found

    seen = []
    monkeypatch.setattr(watchdog, "_look", look)
    result = ludus.collect(Short, model=ScriptedModel(["x"]), input=[ROW], repeats=total, concurrency=total)
    assert len(seen) == total - 1, "the watchdog saw the loop in every call"
    assert [call for call in result.metrics["loop"]["blocked"] if call["stage"] == "verify"] == []


def test_the_watching_thread_ends_with_the_collection():
    ludus.collect(Patient, model=ScriptedModel(["x"]), input=[ROW])
    assert not [thread for thread in threading.enumerate() if thread.name == "ludus-watchdog"]


def test_the_command_warns_on_stderr_in_the_table_and_in_metrics(tmp_path):
    (tmp_path / "environment.yaml").write_text("name: bank\nresources: resources.py:Bank\n")
    code = "import time\nfrom ludus import Resources\n\nclass Bank(Resources):\n"
    code += f"    async def verify(self, task, response):\n        time.sleep({BLOCK})\n        return 1.0\n"
    (tmp_path / "resources.py").write_text(code)
    (tmp_path / "rows.jsonl").write_bytes(b"".join(orjson.dumps({**ROW, "n": n}) + b"\n" for n in range(5)))
    (tmp_path / "script.yaml").write_text("- x\n")
    words = ["collect", ".", "-i", "rows.jsonl", "-m", "scripted:script.yaml", "-o", "run", "-c", "1"]
    done = forked.run([sys.executable, "-m", "ludus", *words], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "warning: verify of bank blocked the event loop for " in done.stderr
    assert "resources.py:6 in verify" in done.stderr
    assert done.stderr.count("warning: verify of bank blocked the event loop") == 1  # once for all rows
    table = " ".join(done.stdout.replace("│", " ").split())
    assert "warning verify of bank blocked the event loop for" in table
    blocked = orjson.loads((tmp_path / "run" / "metrics.json").read_bytes())["loop"]["blocked"]
    (seconds,) = [call["seconds"] for call in blocked if call["stage"] == "verify"]
    assert seconds > 0.2
