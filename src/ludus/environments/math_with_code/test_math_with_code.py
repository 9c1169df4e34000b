"""A Python session per rollout, and answers in boxes."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ludus
from ludus import ScriptedModel, UserError, Verdict
from ludus.environments.math_with_code import qualify as hooks
from ludus.environments.math_with_code import session
from ludus.environments.math_with_code.answers import same_answer, undressed, value_of
from ludus.qualify import cheats
from ludus.testing import configured, disagreement, golden, judge, needs_sandbox, shared_rows

NAME = "math_with_code"
ROW: dict[str, Any] = {"responses_create_params": {"input": "Compute. Use \\boxed{}."}, "expected_result": "42"}
PLAIN = {"stdout": "", "stderr": "", "error_message": None, "result": None}


class Session:
    """A session that runs code and returns the tool's output."""

    def __init__(self, resources: Any) -> None:
        self.resources = resources

    async def __call__(self, code: str) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(await self.resources.call("execute_python", json.dumps({"code": code})))
        return result


@asynccontextmanager
async def opened(**settings: Any) -> AsyncIterator[Session]:
    environment = configured(NAME, settings)
    async with environment.share() as shared:
        resources: Any = environment.session(shared)
        try:
            yield Session(resources)
        finally:
            await resources.close()


@needs_sandbox()
async def test_the_well_formed_lines_of_the_reference_agree() -> None:
    environment, problems = configured(NAME, {}), []
    async with environment.share() as shared:
        for number, line in enumerate(golden(NAME), start=1):
            resources: Any = environment.session(shared)
            task, result = environment.task(line["row"]), None
            if line["kind"] == "tool":
                result = [await resources.call(call["name"], json.dumps(call["arguments"])) for call in line["calls"]]
            else:
                result = await resources.verify(task, ludus.Response(line["response"]))
            await resources.close()
            if problem := disagreement(line, result, free=line["class"] == "hole"):
                problems.append(f"{number}: {problem}")
    assert problems == []


def test_real_rows_are_accepted() -> None:
    environment = ludus.Environment.load(NAME)
    assert [environment.task(row) for row in shared_rows(NAME)]


@needs_sandbox()
async def test_variables_stay_and_builtins_work() -> None:
    async with opened() as run:
        assert await run("x = [3, 1, 2]") == {"success": True, **PLAIN}
        assert (await run("sorted(x)"))["result"] == "[1, 2, 3]"
        assert (await run("def f(n):\n    return n * f(n - 1) if n else len(x)\nf(3)"))["result"] == "18"
        assert (await run("class A:\n    pass\nisinstance(A(), A)"))["result"] == "True"
        assert (await run("calls = []\ncalls.append(1)"))["result"] is None
        assert (await run("len(calls)"))["result"] == "1"


@needs_sandbox()
async def test_output_is_kept_when_code_raises() -> None:
    async with opened() as run:
        expected = {**PLAIN, "stdout": "before\n", "error_message": "division by zero"}
        assert await run("print('before')\n1/0") == {"success": False, **expected}
        assert (await run("raise ValueError"))["error_message"] == "ValueError"
        assert (await run("import os\nprint('a')\nos.system('echo b')\nprint('c')"))["stdout"] == "a\nb\nc\n"


@needs_sandbox()
async def test_code_that_runs_out_of_time_is_interrupted_and_variables_stay() -> None:
    async with opened(max_execution_time=0.5) as run:
        await run("x = 7")
        ended = await run("print('begun')\nwhile True: pass")
        assert ended == {"success": False, **PLAIN, "stdout": "begun\n", "error_message": "code timed-out"}
        assert (await run("import time\ntime.sleep(1000)"))["error_message"] == "code timed-out"
        assert (await run("x"))["result"] == "7"


@needs_sandbox()
@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import signal\n[signal.signal(n, signal.SIG_IGN) for n in (14, 27)]\nwhile True: pass", "did not stop"),
        ("import os\nos._exit(0)", "the Python session ended"),
        ("import os\nos.kill(os.getpid(), 9)", "the Python session ended"),
    ],
)
async def test_code_that_ends_its_session_loses_the_variables_only(code: str, says: str) -> None:
    async with opened(max_execution_time=0.5) as run:
        await run("x = 7")
        ended = await run(code)
        assert not ended["success"]
        assert says in ended["error_message"]
        assert "all variables are lost" in ended["error_message"]
        assert (await run("x"))["error_message"] == "name 'x' is not defined"
        assert (await run("1 + 1"))["result"] == "2"


@needs_sandbox()
async def test_calls_of_one_turn_run_one_after_the_other() -> None:
    async with opened() as run:
        outputs = await asyncio.gather(*(run(f"xs = [*globals().get('xs', []), {n}]") for n in range(6)))
        assert all(output["success"] for output in outputs), outputs
        assert (await run("sorted(xs)"))["result"] == "[0, 1, 2, 3, 4, 5]"


@needs_sandbox()
async def test_code_that_keeps_a_new_session_from_starting_is_told_so() -> None:
    async with opened() as run:
        ended = await run("import os\nos.chmod('/tmp', 0)\nos._exit(0)")
        assert "all variables are lost" in ended["error_message"]
        assert "cannot be started again" in (await run("1 + 1"))["error_message"]


@needs_sandbox()
async def test_two_sessions_share_nothing() -> None:
    environment = configured(NAME, {})
    async with environment.share() as shared:
        first, second = Session(environment.session(shared)), Session(environment.session(shared))
        await first("x = 1\nopen('left', 'w').write('x')")
        assert (await second("x"))["error_message"] == "name 'x' is not defined"
        assert (await second("import os\nos.path.exists('left')"))["result"] == "False"
        await first.resources.close()
        await second.resources.close()


@needs_sandbox()
async def test_a_fork_has_the_same_variables_and_goes_its_own_way() -> None:
    async with opened() as run:
        await run("x = [1]\nopen('file', 'w').write('f')")
        twin = Session(await run.resources.fork())
        try:
            assert (await twin("x.append(2)\nopen('file').read(), x"))["result"] == "('f', [1, 2])"
            assert (await run("x"))["result"] == "[1]"
        finally:
            await twin.resources.close()


@needs_sandbox()
async def test_the_tool_says_which_packages_there_are() -> None:
    async with opened() as run:
        (offered,) = run.resources.tools()
        for name in session.PACKAGES:
            there = name in session.installed()
            assert (name in offered["description"]) == there
            assert (await run(f"{name}.__name__"))["success"] == there


def test_without_packages_the_tool_names_the_standard_library_only(monkeypatch: pytest.MonkeyPatch) -> None:
    from ludus.environments.math_with_code import resources

    monkeypatch.setattr(resources, "installed", tuple)
    (offered,) = resources.MathWithCode().tools()
    assert offered["description"].endswith("You can use the standard library only.")


@pytest.mark.parametrize(
    ("expected", "answer", "equal"),
    [
        ("42", "42.0", True),
        ("0.5", r"\frac{1}{2}", True),
        (r"\frac{3}{4}", "3/4", True),
        ("1000", "1,000", True),
        ("(1,2)", "( 1 , 2 )", True),
        ("{42}", "42", True),
        (r"\(\text{A}\)", "A", True),
        ("inf", r"\infty", True),
        ("inf", "-inf", False),
        ("nan", "nan", False),
        ("1000000", "1000001", False),
        ("1000000", "1000000.5", True),
        ("1234567", "1234568", False),
        ("1234567", "1,234,568.0", False),
        ("1234567", "1234567.0", True),
        ("2469134", r"\frac{4938270}{2}", False),
        ("2469135", r"\frac{4938270}{2}", True),
        ("9" * 310, r"\infty", False),
        ("9" * 310, "1" + "0" * 400, False),
        ("9" * 5000, "9" * 5000 + ".0", True),
        ("1e9999", r"\infty", False),
        (r"-\infty", "-inf", True),
        (r"-\infty", "inf", False),
        ("inf", "5", False),
        ("1_000", "1000", False),
        ("yes", "Yes", False),
        ("", "", False),
        (r"\frac{1}{0}", r"\frac{2}{0}", False),
        (r"\{1\}", "{1}", False),
        ("{1},{2}", "1},{2", False),
    ],
)
def test_answers_are_compared_as_text_and_as_numbers(expected: str, answer: str, equal: bool) -> None:
    assert same_answer(expected, answer) == equal


@given(st.text(alphabet="{}\\$()text0123456789.,/-+frac eE"))
def test_any_text_can_be_compared(text: str) -> None:
    assert same_answer(text, text) == (undressed(text) not in ("", "nan"))
    value_of(text)


@pytest.mark.parametrize(
    ("texts", "reward"),
    [
        ([r"\boxed{42}"], 1.0),
        ([r"\boxed{42}", "done"], 1.0),
        ([r"\boxed{42}", r"\boxed{}"], 1.0),
        ([r"\boxed{42} or \boxed{41}"], 0.0),
        ([r"\boxed{42} \boxed{} \boxed{ }"], 1.0),
        (["42"], 0.0),
    ],
)
@needs_sandbox()
async def test_the_last_box_of_the_messages_counts(texts: list[str], reward: float) -> None:
    response = ludus.Response.of(*(ludus.response.message(text) for text in texts))
    verdict = await judge(NAME, ROW, response)
    assert isinstance(verdict, Verdict)
    assert verdict.reward == reward


@needs_sandbox()
async def test_a_session_that_cannot_start_is_a_failure_of_one_line() -> None:
    calls = [{"calls": [{"name": "execute_python", "arguments": {"code": "1"}}]}, "done"]
    settings = {"resources.sandbox.processes": 1}
    result = await ludus.collect_async(NAME, model=ScriptedModel(calls), input=[ROW], settings=settings)
    (failed,) = result.failures()
    assert failed.error is not None
    assert failed.error.cause == (
        "the Python session did not start: exit code 1: BlockingIOError: [Errno 11] Resource temporarily unavailable"
    )


#: The cheats that a comparison of two texts could fall for: those that find the answer, or change what is compared.
TRIED = ("prints_success", "overwrites_files", "replaces_equality", "reads_frames", "reads_memory", "reads_files")


@needs_sandbox()
@pytest.mark.slow
def test_code_that_attacks_the_grader_earns_nothing() -> None:
    """At a task whose expected result only a leak can tell."""
    rows = []
    for name in TRIED:
        expected = f"EXPECTED-{secrets.token_hex(8)}"
        rows.append({"task_id": name, "responses_create_params": {"input": name}, "expected_result": expected})
    programs = cheats.programs("EXPECTED-[0-9a-f]{16}")
    scripts = {name: hooks.program(None, programs[name]) for name in TRIED}
    model = ScriptedModel(lambda asked: scripts[asked.input[0]["content"]](asked))
    result = ludus.collect(NAME, model=model, input=rows, settings={"resources.max_execution_time": 2.0})
    assert [rollout.reward for rollout in result.rollouts] == [0.0] * len(TRIED)


def test_the_process_provider_is_refused_before_the_model_is_asked() -> None:
    model = ScriptedModel(lambda request: pytest.fail("the model was asked"))
    with pytest.raises(UserError, match="sandbox provider process"):
        ludus.collect(NAME, model=model, limit=1, settings={"resources.sandbox.provider": "process"})
