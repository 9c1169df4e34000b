"""Search/replace answers are applied to a clean checkout; scripts must tell the bug from its fix."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from ludus import Environment, Failure, Verdict
from ludus.environments.swerl_gen import build, qualify
from ludus.environments.swerl_gen.edits import BadAnswer, Edit, applied, edits_of, script_of
from ludus.environments.swerl_gen.resources import BUG_IS_GONE, BUG_IS_THERE, runs_in_secret_order
from ludus.testing import judging, needs_sandbox

NAME = "swerl_gen"
DATA = Path(__file__).parent / "data"
ROWS = [json.loads(line) for line in (DATA / "example.jsonl").read_text(encoding="utf-8").splitlines()]
REPAIRS = [row for row in ROWS if row["mode"] == "eval"]
SCRIPTS = [row for row in ROWS if row["mode"] == "repro-gen"]
BLOCK = "```python\n### a.py\n<<<<<<< SEARCH\none\n=======\ntwo\n>>>>>>> REPLACE\n```"


def test_the_shipped_rows_are_made_of_those_of_mini_swe_agent() -> None:
    source = DATA.parents[1] / "mini_swe_agent" / "data" / "example.jsonl"
    assert (DATA / "example.jsonl").read_text(encoding="utf-8") == build.written(source, 2)
    assert (len(REPAIRS), len(SCRIPTS)) == (12, 2)


def test_edits_are_read_between_the_tags_and_after_the_thoughts() -> None:
    answer = f"<solution>{BLOCK.replace('two', 'old')}</solution></think>text\n<solution>\n{BLOCK}\n</solution>"
    assert edits_of(answer) == [Edit("a.py", "one\n", "two\n")]
    assert edits_of(BLOCK, relaxed=True) == [Edit("a.py", "one\n", "two\n")]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (BLOCK, "not between"),
        (f"<solution>\n{BLOCK}", "not between"),
        ("<solution>none</solution>", "no search/replace block"),
        ("<solution>\n```\n<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n```\n</solution>", "names no file"),
        ("<solution>\n```\n### a.py\n<<<<<<< SEARCH\na\n=======\nb\n```\n</solution>", "does not end"),
    ],
)
def test_an_answer_of_another_form_is_refused(answer: str, problem: str) -> None:
    with pytest.raises(BadAnswer, match=problem):
        edits_of(answer)


def test_edits_are_applied_to_the_file_as_it_was_shown() -> None:
    files = {"a.py": "one\ntwo\none\nthree"}
    both = [Edit("a.py", "one\n", "1\n1\n"), Edit("a.py", "three\n", "")]
    assert applied(files, both) == {"a.py": "1\n1\ntwo\none\n"}


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (Edit("a.py", "ne\n", "x\n"), "do not stand"),
        (Edit("a.py", "", "x\n"), "do not stand"),
        (Edit("a.py", "one\n", "one\n"), "changes nothing"),
        (Edit("b.py", "one\n", "x\n"), "was not shown"),
        (Edit("a.py", "two\nthree\n", "x\n"), "overlap"),
    ],
)
def test_one_edit_that_does_not_fit_makes_the_answer_worthless(edit: Edit, problem: str) -> None:
    good = Edit("a.py", "one\ntwo\n", "1\n")
    if edit.search == "":
        edit, good = Edit("a.py", "", "x\n"), Edit("a.py", "three\n", "3\n")
        assert applied({"a.py": ""}, [edit]) == {"a.py": "x\n"}
        return
    with pytest.raises(BadAnswer, match=problem):
        applied({"a.py": "one\ntwo\nthree\n"}, [good, edit])


@given(st.text(st.sampled_from("`#<=> \nSEARCHREPLACEpython/solution"), max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (lambda: edits_of(f"<solution>{text}</solution>"), lambda: script_of(text)):
        try:
            read()
        except BadAnswer:
            pass


#: Tests that share the sandboxes of the file.
together = pytest.mark.asyncio(loop_scope="module")
Judge = Callable[..., Awaitable[Verdict | Failure]]
Rewards = Callable[..., Awaitable[dict[str, float]]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judge() -> AsyncIterator[Judge]:
    async with judging(NAME) as opened:
        yield opened


@pytest.fixture
def rewards(judge: Judge) -> Rewards:
    """The rewards of several answers to one row."""

    async def play(row: dict[str, Any], answers: dict[str, str], **settings: Any) -> dict[str, float]:
        by_name = {}
        for name, answer in answers.items():
            verdict = await judge(row, answer, **settings)
            assert isinstance(verdict, Verdict), verdict
            by_name[name] = verdict.reward
        return by_name

    return play


def task_of(row: dict[str, Any]) -> Any:
    return Environment.load(NAME).task(row)


@needs_sandbox()
@pytest.mark.parametrize("row", [REPAIRS[0], REPAIRS[7]], ids=["first", "eighth"])
@together
async def test_a_right_repair_earns_1_and_nothing_else_does(rewards: Rewards, row: dict[str, Any]) -> None:
    task = task_of(row)
    wrong = {**qualify.breaking(task), **(qualify.exploits(task) if row is REPAIRS[0] else {})}
    earned = await rewards(row, {"right": str(qualify.oracle(task)), **wrong})
    assert earned == {"right": 1.0, **dict.fromkeys(wrong, 0.0)}


@needs_sandbox()
@together
async def test_a_part_of_the_repair_earns_a_fifth(rewards: Rewards) -> None:
    row = next(row for row in REPAIRS if row["instance"]["instance_id"] == "ludus__paginator")
    assert await rewards(row, {"": f"<solution>\n{qualify._blocks(task_of(row))[0]}\n</solution>"}) == {"": 0.2}


@needs_sandbox()
@pytest.mark.parametrize("row", SCRIPTS, ids=["first", "second"])
@together
async def test_a_script_must_tell_the_bug_from_its_fix(rewards: Rewards, row: dict[str, Any]) -> None:
    task = task_of(row)
    wrong = qualify.breaking(task)
    earned = await rewards(row, {"right": str(qualify.oracle(task)), **wrong})
    assert earned == {"right": 1.0, **dict.fromkeys(wrong, 0.0)}
    assert await rewards(row, {"": wrong["compares_texts"]}, compat=True) == {"": 1.0}


@needs_sandbox()
@together
async def test_a_row_without_its_repository_is_a_bad_row(judge: Judge) -> None:
    row = json.loads(json.dumps(REPAIRS[0]))
    del row["instance"]["files"]
    row["metadata"]["image"] = "/images/x.sif"
    failure = await judge(row, "x")
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.stage) == ("bad_row", "open")
    assert "/images/x.sif" in failure.cause


@needs_sandbox()
@pytest.mark.parametrize(
    ("row", "fields", "cause"),
    [
        (REPAIRS[0], {"test_patch": "garbage"}, "test_patch is not a diff: 'garbage'"),
        (REPAIRS[0], {"test_patch": ""}, "neither files nor test_patch has tests/"),
        (REPAIRS[0], {"FAIL_TO_PASS": ["tests/nosuch.py::t"]}, "FAIL_TO_PASS names tests/nosuch.py::t, but neither"),
        (REPAIRS[0], {"PASS_TO_PASS": ["tests/nosuch.py::t"]}, "PASS_TO_PASS names tests/nosuch.py::t, but neither"),
        (REPAIRS[0], {"PASS_TO_PASS": ["tests/test_issue.py::test_nosuch"]}, "has no such test"),
        (SCRIPTS[0], {"patch": ""}, "patch changes nothing"),
        (SCRIPTS[0], {"patch": "--- a/none\n+++ b/none\n@@ -1 +1 @@\n-a\n+b\n"}, "patch does not fit"),
    ],
)
@together
async def test_a_row_that_cannot_be_judged_fails_before_the_model_is_asked(
    judge: Judge, row: dict[str, Any], fields: dict[str, Any], cause: str
) -> None:
    failure = await judge({**row, "instance": {**row["instance"], **fields}}, "x")
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.stage) == ("bad_row", "open")
    assert cause in failure.cause


@pytest.mark.parametrize("layouts", [True, False])
def test_a_script_cannot_know_on_which_tree_it_runs_next(layouts: bool) -> None:
    base, fixed = {"a.py": b"x = (1)\n"}, {"a.py": b"x = (2)\n"}
    orders = [runs_in_secret_order(base, fixed, layouts=layouts) for _ in range(200)]
    codes = [tuple(code for _, code in order) for order in orders]
    assert all(sorted(run) == [BUG_IS_GONE] * 3 + [BUG_IS_THERE] * 3 for run in codes)
    assert all(len({run[place] for run in codes}) == 2 for place in range(6))  # neither tree has a place of its own
    for order in orders:
        assert all((b"2" in tree["a.py"].splitlines()[-1]) == (code == BUG_IS_GONE) for tree, code in order)
        assert sum(tree not in (base, fixed) for tree, _ in order) == (2 if layouts else 0)
