"""Search/replace answers are applied to a clean checkout; scripts must tell the bug from its fix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus import Environment, Failure, Response
from ludus.environments.swerl_gen import build, qualify
from ludus.environments.swerl_gen.edits import BadAnswer, Edit, applied, edits_of, script_of
from ludus.response import message
from ludus.testing import configured, judge, needs_sandbox

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


async def rewards(row: dict[str, Any], answers: dict[str, str], **settings: Any) -> dict[str, float]:
    """The rewards of several answers to one row, with one pool of sandboxes."""
    environment = configured(NAME, settings)
    task = environment.task(row)
    found = {}
    async with environment.share() as shared:
        for name, answer in answers.items():
            session: Any = environment.session(shared)
            found[name] = (await session.verify(task, Response.of(message(answer)))).reward
            await session.close()
    return found


def task_of(row: dict[str, Any]) -> Any:
    return Environment.load(NAME).task(row)


@needs_sandbox()
@pytest.mark.parametrize("row", [REPAIRS[0], REPAIRS[7]], ids=["first", "eighth"])
async def test_a_right_repair_earns_1_and_nothing_else_does(row: dict[str, Any]) -> None:
    task = task_of(row)
    wrong = {**qualify.breaking(task), **qualify.exploits(task)}
    found = await rewards(row, {"right": str(qualify.oracle(task)), **wrong})
    assert found == {"right": 1.0, **dict.fromkeys(wrong, 0.0)}


@needs_sandbox()
async def test_a_part_of_the_repair_earns_a_fifth() -> None:
    row = next(row for row in REPAIRS if row["instance"]["instance_id"] == "ludus__paginator")
    assert await rewards(row, {"": f"<solution>\n{qualify._blocks(task_of(row))[0]}\n</solution>"}) == {"": 0.2}


@needs_sandbox()
@pytest.mark.parametrize("row", SCRIPTS, ids=["first", "second"])
async def test_a_script_must_tell_the_bug_from_its_fix(row: dict[str, Any]) -> None:
    task = task_of(row)
    wrong = qualify.breaking(task)
    found = await rewards(row, {"right": str(qualify.oracle(task)), **wrong})
    assert found == {"right": 1.0, **dict.fromkeys(wrong, 0.0)}
    assert await rewards(row, {"": wrong["compares_texts"]}, compat=True) == {"": 1.0}


@needs_sandbox()
async def test_a_row_without_its_repository_is_a_bad_row() -> None:
    row = json.loads(json.dumps(REPAIRS[0]))
    del row["instance"]["files"]
    row["metadata"]["image"] = "/images/x.sif"
    found = await judge(NAME, row, "x")
    assert isinstance(found, Failure)
    assert (found.kind, found.stage) == ("bad_row", "verify")
    assert "/images/x.sif" in found.cause
