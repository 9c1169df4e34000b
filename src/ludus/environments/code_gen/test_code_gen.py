"""Programs are judged by what they print or return, and cannot reach what is expected."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from pydantic import ValidationError

import ludus
from ludus import Failure, Response, ScriptedModel, Verdict
from ludus.environments.code_gen import qualify as hooks
from ludus.qualify import cheats
from ludus.response import message, reasoning
from ludus.testing import configured, disagreement, golden, judging, needs_sandbox, shared_rows

pytestmark = needs_sandbox()

NAME = "code_gen"
ADD = "a, b = map(int, input().split())\nprint(a + b)"


def row(inputs: list[str], outputs: list[str], **metadata: Any) -> dict[str, Any]:
    fn_name = metadata.pop("fn_name", None)
    tests = {"inputs": inputs, "outputs": outputs, "fn_name": fn_name}
    return {
        "responses_create_params": {"input": "Write a program."},
        "verifier_metadata": {"unit_tests": tests, **metadata},
    }


SUMS = row(["1 2\n", "10 -4\n"], ["3\n", "6\n"])


def fenced(code: str, tag: str = "python") -> str:
    return f"```{tag}\n{code}\n```"


#: Tests that share the sandboxes of the file.
together = pytest.mark.asyncio(loop_scope="module")
Judge = Callable[..., Awaitable[Verdict | Failure]]
Graded = Callable[..., Awaitable[Verdict]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judge() -> AsyncIterator[Judge]:
    async with judging(NAME) as opened:
        yield opened


@pytest.fixture
def graded(judge: Judge) -> Graded:
    """The verdict on a program."""

    async def run(code: str, task_row: dict[str, Any] = SUMS, tag: str = "python", **settings: Any) -> Verdict:
        verdict = await judge(task_row, fenced(code, tag), **settings)
        assert isinstance(verdict, Verdict), verdict
        return verdict

    return run


async def test_the_well_formed_lines_of_the_reference_agree() -> None:
    problems = []
    async with configured(NAME, {}).share() as shared:  # one pool of sandboxes for all lines
        for number, line in enumerate(golden(NAME), start=1):
            result = await _replayed(configured(NAME, line["config"]), shared, line)
            if problem := disagreement(line, result, free=line["class"] == "hole"):
                problems.append(f"{number}: {problem}")
    assert problems == []


async def _replayed(environment: ludus.Environment, shared: Any, line: dict[str, Any]) -> Any:
    session: Any = environment.session(shared)
    try:
        task = environment.task(line["row"])
        await session.open(task)
        return await session.verify(task, Response(line["response"]))
    except (Failure, ValidationError) as error:
        return error if isinstance(error, Failure) else Failure("bad_row", str(error))
    finally:
        await session.close()


@together
async def test_real_rows_are_judged(graded: Graded) -> None:
    for real in list(shared_rows(NAME))[:2]:
        verdict = await graded("print('nothing')", real)
        assert (verdict.reward, verdict.values["test_results"]) == (0.0, ["wrong"])


def test_the_shipped_rows_are_solved_by_their_solutions() -> None:
    environment = ludus.Environment.load(NAME)
    rows = [json.loads(line) for line in environment.dataset().read_text(encoding="utf-8").splitlines()]
    model = ScriptedModel(lambda request: fenced(_solution(rows, request.input)))
    rollouts = ludus.collect(NAME, model=model).rollouts
    assert len(rollouts) == len(rows) >= 5
    for record in (rollout.to_row() for rollout in rollouts):
        tests = record["verifier_metadata"]["unit_tests"]["inputs"]
        assert (record["reward"], record["test_results"]) == (1.0, ["passed"] * len(tests))


def _solution(rows: list[dict[str, Any]], asked: Any) -> str:
    return str(next(row["solution"] for row in rows if row["responses_create_params"]["input"] == list(asked)))


@together
@pytest.mark.parametrize(
    ("code", "results"),
    [
        (ADD, ["passed", "passed"]),
        ("print(3)", ["passed", "wrong"]),
        ("print(6)", ["wrong"]),
        ("1/0", ["error"]),
        ("def f(:", ["error"]),
        ("print(3)\nraise ValueError", ["error"]),
        (f"{ADD}\nimport sys\nsys.exit(3)", ["passed", "passed"]),
        (f"{ADD}\nimport os, sys\nsys.stdout.flush()\nos._exit(3)", ["error"]),
        ("while True: pass", ["time_limit"]),
        (f"import time\ntime.sleep(4)\n{ADD}", ["time_limit"]),
        ("class Solution:\n    pass\n" + ADD, ["passed", "passed"]),
        ("total = 0\ndef add():\n    global total\n    total = sum(map(int, input().split()))\nadd()\nprint(total)",
         ["passed", "passed"]),
        ("import sys\nfirst = sys.stdin.buffer.readline()\nassert not sys.stdin.buffer.readline()\n"
         "print(sum(map(int, first.split())))", ["passed", "passed"]),
        (f"def down(n):\n    return n and down(n - 1)\ndown(20000)\n{ADD}", ["passed", "passed"]),
        ("print(sqrt(9))", ["error"]),
        (f"{ADD}\nopen('left', 'x').write('x')\nopen('/tmp/left', 'x')", ["passed", "passed"]),
    ],
)  # fmt: skip
async def test_tests_run_in_order_until_one_fails(graded: Graded, code: str, results: list[str]) -> None:
    verdict = await graded(code, unit_test_timeout_secs=1)
    assert verdict.values["test_results"] == results
    assert verdict.reward == float(results == ["passed", "passed"])


@together
async def test_a_program_without_enough_memory_fails_its_test(graded: Graded) -> None:
    failure = (await graded("kept = [bytearray(1 << 27) for _ in range(64)]", unit_test_timeout_secs=60)).values
    assert (failure["test_results"], failure["first_failure"]["cause"]) == (["error"], "out of memory")


@together
async def test_the_first_failure_names_its_test_and_cause(graded: Graded) -> None:
    verdict = await graded("print(3)")
    failure = verdict.values["first_failure"]
    assert failure == {
        "test": 1,
        "input": "10 -4\n",
        "expected": "6\n",
        "result": "wrong",
        "cause": "line 1: expected 6, got 3",
    }


#: A number of numpy, or what looks like one where there is no numpy.
NUMPY = """
try:
    from numpy import int64
except ImportError:
    class int64:
        shape = ()
        def __init__(self, value): self.value = value
        def tolist(self): return self.value
"""


@together
@pytest.mark.parametrize(
    ("code", "output", "reward"),
    [
        ("def f(a, b):\n    return a + b", "3", 1.0),
        ("class Solution:\n    def f(self, a: int, b: int) -> int:\n        return a + b", "3", 1.0),
        ("def f(a, b):\n    return 3.0000001", "3", 1.0),
        ("def f(a, b):\n    return 100001", "100000", 0.0),
        ("def f(a, b):\n    return (1, (2,))", "[1, [2]]", 1.0),
        ("def f(a, b):\n    return [0.1 + 0.2, {'x': [1.0000001]}]", '[0.3, {"x": [1]}]', 1.0),
        ("def f(a, b):\n    return [0.1 + 0.2, {'x': [1.1]}]", '[0.3, {"x": [1]}]', 0.0),
        ("def f(a, b):\n    return [100001]", "[100000]", 0.0),
        ("def f(a, b):\n    return [math.inf]", "[5]", 0.0),
        (f"{NUMPY}def f(a, b):\n    return int64(3)", "3", 1.0),
        (f"{NUMPY}def f(a, b):\n    return [int64(3)]", "[3]", 1.0),
        (f"{NUMPY}def f(a, b):\n    return int64(4)", "3", 0.0),
        ("def f(a, b):\n    return {1: 2}", '{"1": 2}', 1.0),
        ("def f(a, b):\n    return {1}", "[1]", 0.0),
        ("def f(a, b):\n    print('{\"value\": 9}')\n    return 3", "3", 1.0),
        ("import sys\nsys.stdout.write('x' * 100000)\ndef f(a, b):\n    return 3", "3", 1.0),
        ("def f(a, b) -> List[int]:\n    return Counter([a])[1] + 2", "3", 1.0),
        ("def g(a, b):\n    return 3", "3", 0.0),
        ("def f(a, b):\n    return 5", "Infinity", 0.0),
        ("def f(a, b):\n    return 5", "1e400", 0.0),
        ("def f(a, b):\n    return -math.inf", "Infinity", 0.0),
        ("def f(a, b):\n    return math.inf", "Infinity", 1.0),
        ("def f(a, b):\n    return math.inf", "5", 0.0),
    ],
)
async def test_call_mode_compares_the_returned_value(graded: Graded, code: str, output: str, reward: float) -> None:
    assert (await graded(code, row(["1\n2"], [output], fn_name="f"))).reward == reward


@together
@pytest.mark.parametrize(
    "text",
    [
        f"Here it is: ```python\n{ADD}\n```",
        f"1. ```py\n{ADD}\n```",
        f"```python\n{ADD}```",
        f"The program: ```python\n{ADD}``` ",
        f"```python\n{ADD}\n``` This adds.",
        f"Use ```print``` here.\n```python\n{ADD}\n```\nNever ```exec```",
    ],
)
async def test_text_on_the_line_of_a_fence_does_not_hide_the_program(judge: Judge, text: str) -> None:
    verdict = await judge(row(["1 2\n"], ["3\n"]), text)
    assert isinstance(verdict, Verdict)
    assert verdict.values["extracted_model_code"] == ADD
    assert verdict.reward == 1.0


@together
async def test_a_function_that_the_program_lacks_is_not_taken_from_a_library(graded: Graded) -> None:
    verdict = await graded("x = 1", row(["1\n2"], ["3"], fn_name="add"))
    assert "does not define add" in verdict.values["first_failure"]["cause"]


@together
@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (row([], []), "there is no test"),
        (row(["1"], []), "1 inputs and 0 outputs"),
        (row(["no json"], ["1"], fn_name="f"), "must be JSON"),
        (row(["1"], ["no json"], fn_name="f"), "must be JSON"),
        (row(["1"], ["1"], fn_name="os.system"), "no name of a function"),
        (row(["1"], ["1"], fn_name="f", language="cpp"), "fn_name is for Python"),
        (row(["1"], ["1"], language="cobol"), "none of python"),
    ],
)
async def test_a_row_that_no_program_could_satisfy_is_refused(judge: Judge, bad: dict[str, Any], says: str) -> None:
    failure = await judge(bad, fenced(ADD))
    assert isinstance(failure, Failure)
    assert (failure.stage, failure.kind) == ("open", "bad_row")
    assert says in failure.cause


@together
@pytest.mark.parametrize(
    ("text", "reward"),
    [
        (fenced(ADD), 1.0),
        (f"<think>x</think>\n{fenced(ADD)}", -0.5),
        (f"<THINK>\n{fenced(ADD)}", -0.5),
        (fenced(f"tag = '<think>'\n{ADD}"), 1.0),
        ("<think>no program", 0.0),
    ],
)
async def test_thinking_tags_around_the_program_replace_the_reward(judge: Judge, text: str, reward: float) -> None:
    verdict = await judge(SUMS, text, reasoning_format_penalty=-0.5)
    assert isinstance(verdict, Verdict)
    assert verdict.reward == reward


@together
async def test_repeated_tags_in_the_reasoning_replace_the_reward(judge: Judge) -> None:
    for thought, reward in [("<think>once</think>", 1.0), ("<think>a</think><think>b</think>", 0.0)]:
        verdict = await judge(SUMS, Response.of(reasoning(thought), message(fenced(ADD))))
        assert isinstance(verdict, Verdict)
        assert verdict.reward == reward


@together
@pytest.mark.slow
@pytest.mark.parametrize(("name", "tool"), [("mean_cpp", "g++"), ("mean_javascript", "node")])
async def test_other_languages_run_where_their_tools_are(graded: Graded, name: str, tool: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    lines = ludus.Environment.load(NAME).dataset("languages").read_text(encoding="utf-8").splitlines()
    chosen = next(row for row in map(json.loads, lines) if row["task_id"] == name)
    assert (await graded(chosen["solution"], chosen, "x")).values["test_results"] == ["passed"] * 3
    assert (await graded("nonsense(", chosen, "x")).values["test_results"] == ["error"]
    if tool == "node":
        thrown = (await graded("function f() {\n  throw new TypeError('no such thing');\n}\nf();", chosen, "x")).values
        assert thrown["first_failure"]["cause"] == "exit code 1: TypeError: no such thing"
    loop = "int main() { volatile int x = 0; for (;;) x++; }" if tool == "g++" else "for (;;) {}"
    verdict = await graded(loop, chosen, "x", unit_test_timeout_secs=1)
    assert verdict.values["test_results"] == ["time_limit"]


SECRET = "EXPECTED-[0-9a-f]{16}"


#: The cheats that act when a function is called, or through what it returns. The others are programs with an input.
CALLED = {"exits_when_called", "patches_framework", "answers_nan", "skips", "replaces_equality", "reads_frames"}


@pytest.fixture(scope="module")
def cheated() -> dict[str, Any]:
    """The rollout of every cheat, at a task whose expected output only a leak can tell."""
    rows, answers = [], {}
    for name, source in cheats.programs(SECRET).items():
        expected = f"EXPECTED-{secrets.token_hex(8)}"
        task_row = row(["1"], [json.dumps(expected)], fn_name="f") if name in CALLED else row(["1"], [expected])
        task_row |= {"task_id": name, "responses_create_params": {"input": name}}
        rows.append(task_row)
        answers[name] = hooks.program(ludus.Environment.load(NAME).task(task_row), source)
    model = ScriptedModel(lambda asked: answers[asked.input[0]["content"]])
    settings = {"resources.unit_test_timeout_secs": 1.0}
    result = ludus.collect(NAME, model=model, input=rows, settings=settings)
    return {rollout.to_row()["task_id"]: rollout for rollout in result.rollouts}


@pytest.mark.slow
def test_a_program_that_attacks_the_grader_earns_nothing(cheated: dict[str, Any]) -> None:
    assert {name: rollout.reward for name, rollout in cheated.items()} == dict.fromkeys(cheats.NAMES, 0.0)
    for name in ("reads_frames", "reads_memory", "reads_files"):  # they searched to the end
        assert cheated[name].to_row()["test_results"] == ["wrong"], name


@together
@pytest.mark.parametrize("name", ["reads_frames", "reads_memory", "reads_files"])
async def test_a_cheat_that_searches_finds_what_is_there(graded: Graded, name: str) -> None:
    """The hunters find a secret in the input, so that finding nothing means that there is nothing."""
    secret = f"EXPECTED-{secrets.token_hex(8)}"
    keep = "import sys\nkept = sys.stdin.read()\nopen('kept.txt', 'w').write(kept)\n"
    source = keep + cheats.programs(SECRET)[name]
    verdict = await graded(f"{source}\nprint(cheat())", row([secret], [secret]))
    assert verdict.reward == 1.0, verdict.values["first_failure"]
