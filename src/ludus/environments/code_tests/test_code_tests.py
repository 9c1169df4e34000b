"""Hidden tests judge a program that cannot reach them."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

import ludus
from ludus import Failure, ScriptedModel, Verdict
from ludus.environments.code_tests import qualify as hooks
from ludus.environments.code_tests.inside.crossing import CannotCross, decode, encode
from ludus.qualify import cheats
from ludus.testing import judging, needs_sandbox

NAME = "code_tests"
SECRET = "EXPECTED-[0-9a-f]{16}"


def row(test: str | list[str], name: str = "f", **fields: Any) -> dict[str, Any]:
    tests = {"test": test} if isinstance(test, str) else {"test_list": test}
    return {"responses_create_params": {"input": "Write f."}, "entry_point": name, **tests, **fields}


def cases(*bodies: str) -> str:
    methods = "".join(f"    def test_{n}(self):\n        {body}\n" for n, body in enumerate(bodies))
    return f"import unittest\nclass Cases(unittest.TestCase):\n{methods}"


def fenced(code: str) -> str:
    return f"```python\n{code}\n```"


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

    async def run(code: str, task_row: dict[str, Any], **settings: Any) -> Verdict:
        verdict = await judge(task_row, fenced(code), **settings)
        assert isinstance(verdict, Verdict), verdict
        return verdict

    return run


@needs_sandbox()
def test_the_shipped_rows_of_four_kinds_are_solved_by_their_solutions() -> None:
    environment = ludus.Environment.load(NAME)
    tasks: list[Any] = [environment.task(json.loads(line)) for line in environment.dataset().read_text().splitlines()]
    by_prompt = {json.dumps(task.input): fenced(task.solution) for task in tasks}
    model = ScriptedModel(lambda request: by_prompt[json.dumps(list(request.input))])
    result = ludus.collect(NAME, model=model)
    assert len(result.rollouts) == len(tasks) >= 5
    for rollout in result.rollouts:
        assert rollout.reward == 1.0
        assert set(rollout.to_row()["test_results"].values()) == {"passed"}
        assert rollout.to_row()["responses_create_params"]["input"]


@needs_sandbox()
@pytest.mark.parametrize(
    ("test", "code", "results"),
    [
        ("def check(candidate):\n    assert candidate(2) == 4", "def f(x):\n    return 2 * x", {"check": "passed"}),
        ("def check(candidate):\n    assert candidate(2) == 4", "def f(x):\n    return 5", {"check": "wrong"}),
        ("def check(candidate):\n    assert f(2) == 4", "def f(x):\n    return 4", {"check": "passed"}),
        (["assert f(1) == 1", "assert f(2) == 1"], "def f(x):\n    return 1",
         {"assert 0": "passed", "assert 1": "passed"}),
        (["assert f(1) == 1", "assert f(2) == 2"], "def f(x):\n    return 1",
         {"assert 0": "passed", "assert 1": "wrong"}),
        ("assert f(1) == 1", "def f(x):\n    return 1", {"tests": "passed"}),
        ("assert f(1) == 1", "def f(x):\n    return [1]", {"tests": "wrong"}),
        ("assert f(1) == 1", "def f(x:", {"program": "error"}),
        ("assert f(1) == 1", "def g(x):\n    return 1", {"tests": "error"}),
        (cases("self.assertEqual(f(1), 1)", "self.assertRaises(KeyError, f, 0)"),
         "def f(x):\n    return {1: 1}[x]", {"test_0": "passed", "test_1": "passed"}),
        (cases("self.assertEqual(f(1), 1)", "self.assertRaises(KeyError, f, 0)"),
         "def f(x):\n    return 1", {"test_0": "passed", "test_1": "wrong"}),
        (cases("self.skipTest('never'); f(1)"), "def f(x):\n    return 1", {"test_0": "skipped"}),
        ("assert list(f(3)) == [0, 1, 2]", "def f(n):\n    return (x for x in range(n))", {"tests": "passed"}),
        ("assert next(f(3)) == 0", "def f(n):\n    return map(int, range(n))", {"tests": "passed"}),
        ("assert f(3) == [0]", "def f(n):\n    return map(int, range(n))", {"tests": "wrong"}),
        ("assert f(1, k=(2, {3})) == {'a': (1, 2)}", "def f(x, k):\n    return {'a': (x, k[0])}", {"tests": "passed"}),
        ("assert f(10**400) == 10**400 + 1", "def f(x):\n    return x + 1", {"tests": "passed"}),
        ("import math\nassert math.isnan(f())", "def f():\n    return float('nan')", {"tests": "passed"}),
        ("assert f() == 1", "def f():\n    print('noise' * 100000)\n    return 1", {"tests": "passed"}),
    ],
)  # fmt: skip
@together
async def test_each_test_has_a_result(graded: Graded, test: Any, code: str, results: dict[str, str]) -> None:
    verdict = await graded(code, row(test))
    assert verdict.values["test_results"] == results, verdict.values["first_failure"]
    assert verdict.reward == float(bool(results) and set(results.values()) == {"passed"})


@needs_sandbox()
@together
async def test_the_prompts_own_functions_serve_both_sides(graded: Graded) -> None:
    prompt = "def double(x):\n    return 2 * x\n\ndef f(x):\n    '''Double twice.'''\n"
    task_row = {"prompt": prompt, "entry_point": "f", "test": "def check(c):\n    assert c(3) == double(double(3))"}
    assert (await graded("def f(x):\n    return double(double(x))", task_row)).reward == 1.0
    assert (await graded("def double(x):\n    return 0\ndef f(x):\n    return 0", task_row)).reward == 0.0


@needs_sandbox()
@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (row("assert f(1) == 1", solution="def f(x):\n    return 2"), "own solution does not pass"),
        (row("assert f(len) == 1", solution="def f(x):\n    return 1"), "cannot be passed to the program"),
        (
            row("assert f(1).real_part == 1", solution="class A:\n    real_part = 1\ndef f(x):\n    return A()"),
            "real_part",
        ),
        (row(""), "there is no test"),
        (row("x = 1"), "the tests never use f"),
        (row("import unittest\nclass Cases(unittest.TestCase):\n    pass"), "the tests never use f"),
        (row("def check(candidate):\n    pass"), "the tests never use f"),
        (row("def check(candidate:"), "test is no Python"),
        ({**row("assert f(1) == 1"), "context": "this is no code at all:"}, "context is no Python"),
        (row("assert f(1) == 1", name="os.system"), "no name of a function"),
        (row("assert f(1) == g(1)", name=""), "do not show which function they call"),
        (row("assert f(1) == 1", solution="def g(x):\n    return 1"), "the solution does not define f"),
        (row("import requests_of_nobody\nassert f(1) == 1"), "test imports requests_of_nobody, which is not in the"),
        ({**row("assert f(1) == 1"), "context": "from a.b import c"}, "context imports a, which is not in the sandbox"),
        (
            {"prompt": "def f(x: int) -> int:\n", "entry_point": "f", "test": "assert f(1) == 1"},
            "prompt is only the head of a function",
        ),
        (row("x = [1]\nassert f(x) is x"), "which another process cannot answer"),
        ({"text": "Add one.", "test_list": ["assert inc(dec(1)) == 1"]}, "do not show which function they call"),
    ],
)
@together
async def test_a_row_that_cannot_be_judged_is_refused(judge: Judge, bad: dict[str, Any], says: str) -> None:
    failure = await judge(bad, fenced("def f(x):\n    return 1"))
    assert isinstance(failure, Failure)
    assert (failure.stage, failure.kind) == ("open", "bad_row")
    assert says in failure.cause


@needs_sandbox()
@together
@pytest.mark.parametrize(
    ("test", "code"),
    [
        ("assert f(1).startswith('a')", "def f(x):\n    return object()"),
        ("assert f(1) == 1", "def f(x):\n    return object()"),
        ("assert f(1)[0] == 1", "def f(x):\n    return object()"),
        ("assert sorted(f(1).items()) == [(1, 2)]", "class A:\n    pass\ndef f(x):\n    return A()"),
        ("assert f(1).days == 1", "def f(x):\n    return lambda: 1"),
        ("def check(candidate):\n    assert len(candidate(1)) == 1", "def f(x):\n    return object()"),
    ],
)
async def test_without_a_solution_an_object_in_the_place_of_plain_data_is_wrong(
    graded: Graded, test: str, code: str
) -> None:
    assert (await graded(code, row(test))).reward == 0.0


@needs_sandbox()
@together
async def test_without_a_solution_what_cannot_cross_is_a_failure_and_no_reward(judge: Judge) -> None:
    failure = await judge(row("assert f(len) == 1"), fenced("def f(x):\n    return 1"))
    assert isinstance(failure, Failure)
    assert (failure.stage, failure.kind) == ("verify", "cannot_judge")


CLASSES = "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\nclass Bad(Exception):\n    pass\n"


@needs_sandbox()
@together
@pytest.mark.parametrize(
    ("test", "code"),
    [
        (cases("self.assertEqual(f(1), 2)") + "if __name__ == '__main__':\n    unittest.main()\n",
         "def f(x):\n    return x + 1"),
        ("import asyncio\nassert asyncio.run(f(1)) == 2", "async def f(x):\n    return x + 1"),
        ("try:\n    f(1)\nexcept Bad as error:\n    assert str(error) == 'x'\nelse:\n    raise AssertionError",
         "def f(x):\n    raise Bad('x')"),
        ("assert isinstance(f(1), P)", "def f(x):\n    return P(x)"),
        ("assert f(1) is int", "def f(x):\n    return type(x)"),
        ("assert f({'a': 1}) == {'a'}", "def f(d):\n    return d.keys()"),
        ("assert sorted(f({'a': 1})) == [('a', 1)]", "def f(d):\n    return d.items()"),
        ("assert f(1).x == 1 and f(1) == (1, 2)",
         "from collections import namedtuple\nQ = namedtuple('Q', 'x y')\ndef f(x):\n    return Q(x, 2)"),
        ("g = f(4)\nassert next(g) == 0 and list(g) == [1, 2, 3] and list(g) == []",
         "def f(n):\n    yield from range(n)"),
        ("from itertools import islice\nassert list(islice(f(), 2)) == [7, 7]",
         "class A:\n    def __iter__(self):\n        while True:\n            yield 7\ndef f():\n    return A()"),
        ("r = f()\nassert len(r) == 2 and list(r) == [1, 2] and 2 in r",
         "class A:\n    def __len__(self):\n        return 2\n    def __iter__(self):\n        return iter([1, 2])\n"
         "def f():\n    return A()"),
    ],
)  # fmt: skip
async def test_without_a_solution_a_right_program_passes(graded: Graded, test: str, code: str) -> None:
    assert (await graded(code, row(test, context=CLASSES))).reward == 1.0


@needs_sandbox()
@together
@pytest.mark.parametrize(
    ("test", "code"),
    [
        ("b = f()\nb.add(1)\nassert b.pop() == 1",
         "class f:\n    def __init__(self):\n        self.add, self.pop = [].append, lambda: 1"),
        ("assert f(1) == P(1)", "def f(x):\n    return P(x)"),
        ("assert P(1) == f(1)", "def f(x):\n    return P(x)"),
        ("assert f(1)[0] == 1", "class f(object):\n    def __init__(self, x): pass\n    __getitem__ = lambda s, i: 1"),
        ("assert str(f(1)) == 'one'", "class f:\n    def __init__(self, x): pass\n    __str__ = lambda s: 'one'"),
        ("assert f(1) == {1: 2}", "class A:\n    pass\ndef f(x):\n    return {A(): 2}"),
        ("assert f(1) == helper(1)", "def helper(x):\n    return x\ndef f(x):\n    return x"),
    ],
)  # fmt: skip
async def test_without_a_solution_what_only_the_program_can_do_is_a_failure(judge: Judge, test: str, code: str) -> None:
    failure = await judge(row(test, context=CLASSES), fenced(code))
    assert isinstance(failure, Failure)
    assert (failure.stage, failure.kind) == ("verify", "cannot_judge")


@needs_sandbox()
@together
@pytest.mark.parametrize(
    "test",
    [
        "r = f(3)\nassert len(r) == 3 and all(each > 0 for each in r)",
        "r = f(3)\nassert all(each > 0 for each in r) and len(r) == 3",
        "r = f(3)\nassert all(each > 0 for each in r) and list(r) == [1, 2, 3]",
    ],
)
async def test_an_object_cannot_tell_the_tests_two_things(graded: Graded, test: str) -> None:
    code = (
        "class A:\n    turn = 0\n    def __len__(self):\n        return 3\n    def __iter__(self):\n"
        "        self.turn += 1\n        return iter([] if self.turn == 1 else [1, 2, 3])\ndef f(x):\n    return A()"
    )
    task_row = row(test, solution="def f(x):\n    return [1, 2, 3]")
    assert (await graded(code, task_row)).reward == 0.0
    assert (
        await graded("def f(x):\n    return (1, 2, 3)" if "list(" in test else task_row["solution"], task_row)
    ).reward == 1


@needs_sandbox()
@together
async def test_arguments_are_changed_only_where_the_solution_changes_them(graded: Graded) -> None:
    cheat = "def f(xs):\n    xs.clear()\n    return []"
    honest = row("xs = [2, 1]\nassert f(xs) == sorted(xs)", solution="def f(xs):\n    return sorted(xs)")
    assert (await graded(cheat, honest)).reward == 0.0
    in_place = row("xs = [2, 1]\nf(xs)\nassert xs == [1, 2]", solution="def f(xs):\n    xs.sort()")
    assert (await graded("def f(xs):\n    xs[:] = [1, 2]", in_place)).reward == 1.0
    assert (await graded(cheat, in_place)).reward == 0.0


@needs_sandbox()
@pytest.mark.slow
@together
async def test_a_program_that_takes_too_long_fails(graded: Graded) -> None:
    for code in ("def f():\n    while True: pass", "import time\ndef f():\n    time.sleep(1000)"):
        verdict = await graded(code, row("assert f() == 1"), tests_timeout_secs=0.5)
        assert verdict.reward == 0.0
        assert verdict.values["first_failure"]["result"] == "error"


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
    | st.complex_numbers(allow_nan=False)
    | st.datetimes() | st.dates() | st.timedeltas() | st.decimals(allow_nan=False) | st.fractions(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner)
    | st.sets(st.integers()) | st.frozensets(st.text()),
    max_leaves=20,
)  # fmt: skip


@given(plain)
def test_plain_data_crosses_unchanged(value: Any) -> None:
    crossed = decode(json.loads(json.dumps(encode(value))), lambda number, kind: None)
    assert crossed == value
    assert type(crossed) is type(value)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_any_json_is_decoded_or_refused(data: Any) -> None:
    try:
        decode(data, lambda number, kind: None)
    except (ValueError, TypeError, LookupError, ArithmeticError):
        pass


def test_an_object_does_not_cross_as_an_argument() -> None:
    with pytest.raises(CannotCross, match="of type object"):
        encode([object()])


#: The cheats that are tried with test cases of unittest. The others are tried with a function `check`.
IN_CASES = {"exits_early", "patches_framework", "shadows_modules", "skips", "replaces_equality", "reads_frames"}


@pytest.fixture(scope="module")
def cheated() -> dict[str, Any]:
    """The rollout of every cheat, at a task whose expected result only a leak can tell."""
    environment, rows, answers = ludus.Environment.load(NAME), [], {}
    for name, source in cheats.programs(SECRET).items():
        expected = f"EXPECTED-{secrets.token_hex(8)}"
        test = (
            f"import colorsys\ndef check(candidate):\n    expected = {expected!r}\n    assert candidate(1) == expected"
        )
        if name in IN_CASES:
            test = f"import colorsys\n{cases(f'self.assertEqual(f(1), {expected!r})', f'assert f(2) == {expected!r}')}"
        rows.append(row(test, task_id=name) | {"responses_create_params": {"input": name}})
        answers[name] = hooks.program(environment.task(rows[-1]), source)
    model = ScriptedModel(lambda asked: answers[asked.input[0]["content"]])
    settings = {"resources.tests_timeout_secs": 3.0}
    result = ludus.collect(environment, model=model, input=rows, settings=settings)
    return {rollout.to_row()["task_id"]: rollout for rollout in result.rollouts}


@needs_sandbox()
@pytest.mark.slow
def test_a_program_that_attacks_the_tests_earns_nothing(cheated: dict[str, Any]) -> None:
    assert {name: rollout.reward for name, rollout in cheated.items()} == dict.fromkeys(cheats.NAMES, 0.0)
    for name, rollout in cheated.items():
        results = set(rollout.to_row()["test_results"].values())
        assert "passed" not in results, name
        if name.startswith("reads_"):  # it searched to the end
            assert results == {"wrong"}, name
