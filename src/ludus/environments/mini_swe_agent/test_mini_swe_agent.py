"""Repositories are repaired with a shell, and judged on a clean checkout by hidden tests."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from ludus import Environment, Failure, Response, ScriptedModel, Verdict, collect
from ludus.environments.mini_swe_agent import build, qualify
from ludus.graders.repository import apply_patch, grade_change
from ludus.graders.repository.hidden import HiddenTests
from ludus.graders.repository.rows import base_tree, hidden_tests
from ludus.response import function_call, function_call_output, message
from ludus.sandbox import SandboxProvider
from ludus.testing import judging, needs_sandbox, shared_rows

NAME = "mini_swe_agent"
ROWS = build.rows()
NAMES = [row["instance_id"] for row in ROWS]
pytestmark = needs_sandbox()


#: Tests that share the sandboxes of the file.
together = pytest.mark.asyncio(loop_scope="module")
Judge = Callable[..., Awaitable[Verdict | Failure]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judge() -> AsyncIterator[Judge]:
    async with judging(NAME) as opened:
        yield opened


@pytest.fixture(scope="module")
def provider(judge: Any) -> SandboxProvider:
    shared: SandboxProvider = judge.keywords["shared"]
    return shared


def test_the_shipped_rows_are_those_of_the_repositories() -> None:
    assert (build.DATA / "example.jsonl").read_text(encoding="utf-8") == build.written()
    assert len(ROWS) == 12


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
@together
async def test_the_hidden_tests_fail_before_the_fix_and_pass_after(
    provider: SandboxProvider, row: dict[str, Any]
) -> None:
    base = base_tree(row["files"])
    tests = hidden_tests(base, row["test_patch"], row["FAIL_TO_PASS"], row["PASS_TO_PASS"], row["hide_expected"])
    before = await grade_change(provider, base, base, tests)
    after = await grade_change(provider, base, apply_patch(base, row["patch"]), tests)
    assert after.resolved, after.why
    assert not any(before.fail_to_pass.values()), before.fail_to_pass
    assert all(before.pass_to_pass.values()), before.why
    assert before.pass_to_pass


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_every_hidden_test_compares_outside(row: dict[str, Any]) -> None:
    base = base_tree(row["files"])
    tests = hidden_tests(base, row["test_patch"], row["FAIL_TO_PASS"], row["PASS_TO_PASS"], True)
    hidden = HiddenTests({path: data.decode() for path, data in tests.files.items()}, ("_m", "_c", "_r"))
    compared = {expectation.test for expectation in hidden.expectations}
    assert {*row["FAIL_TO_PASS"], *row["PASS_TO_PASS"]} <= compared
    assert "assert" not in "".join(hidden.sources.values())


TAKES_AWAY_REPORTS = b"""
        for name in [name for name in function.__globals__ if name.startswith('_') and not name.startswith('__')]:
            function.__globals__[name] = lambda *_: None
"""


@together
async def test_half_a_repair_that_takes_away_the_reports_of_the_other_tests_is_no_repair(
    provider: SandboxProvider,
) -> None:
    row = row_of("memo")
    base = base_tree(row["files"])
    tests = hidden_tests(base, row["test_patch"], row["FAIL_TO_PASS"], row["PASS_TO_PASS"], row["hide_expected"])
    fixed = apply_patch(base, row["patch"])
    half = {**fixed, "memo/keys.py": base["memo/keys.py"]}
    start = b"    def decorate(function):"
    half["memo/decorator.py"] = half["memo/decorator.py"].replace(start, start + TAKES_AWAY_REPORTS)
    grade = await grade_change(provider, base, half, tests)
    assert not grade.resolved
    assert grade.why[row["FAIL_TO_PASS"][0]] == "an assertion was not reached"


def row_of(name: str) -> dict[str, Any]:
    return next(row for row in ROWS if row["instance_id"] == f"ludus__{name}")


def played(*commands: str) -> Response:
    """A response whose commands run before the verdict."""
    items = []
    for number, command in enumerate(commands):
        items += [
            function_call("bash", {"command": command}, call_id=f"c{number}"),
            function_call_output(f"c{number}", ""),
        ]
    return Response.of(*items, message("Done."))


def command_of(turns: list[Any]) -> str:
    return str(turns[0]["arguments"]["command"])


@together
async def test_a_repair_by_shell_earns_1_and_the_verdict_holds_the_patch_and_the_tests(judge: Judge) -> None:
    row = row_of("paginator")
    task = Environment.load(NAME).task(row)
    verdict = await judge(row, played(command_of(qualify.oracle(task))))
    assert isinstance(verdict, Verdict), verdict
    assert verdict.reward == 1.0
    assert verdict.values["resolved"] is True
    assert verdict.values["patch"] == row["patch"]
    assert verdict.values["tests_status"]["FAIL_TO_PASS"]["success"] == row["FAIL_TO_PASS"]


@pytest.mark.parametrize(
    ("commands", "problem"),
    [
        ((), "nothing was changed"),
        (("ls -la && cat paginator/pages.py",), "nothing was changed"),
        (("rm -rf ../repo/* && mkdir -p paginator && touch paginator/__init__.py",), "it did not run to its end"),
        (("echo 'def test_fixed() -> None: pass' > tests/test_issue.py; echo > conftest.py",), "nothing was changed"),
        (("python3 -c 'for n in range(5100): open(str(n), \"w\")'",), "the working tree cannot be read: more than"),
        (("ln -s /etc/passwd paginator/pages2.py; ln -sf / paginator/root",), "nothing was changed"),
    ],
)
@together
async def test_what_does_not_repair_earns_0(judge: Judge, commands: tuple[str, ...], problem: str) -> None:
    verdict = await judge(row_of("paginator"), played(*commands))
    assert isinstance(verdict, Verdict), verdict
    assert verdict.reward == 0.0
    assert problem in verdict.values["problem"]


async def test_hidden_tests_and_the_fix_are_not_in_the_model_s_sandbox() -> None:
    row = row_of("parcel")

    def look(request: Any) -> Any:
        if request.turn == 0:
            return {
                "call": "bash",
                "arguments": {"command": "grep -r test_fixed_ /home /opt /tmp /etc | head; ls -a; ls /opt"},
            }
        return "Done."

    rollout = (await _collected(row, look))[0]
    output = next(item["output"] for item in rollout["response"]["output"] if item["type"] == "function_call_output")
    assert "test_fixed_" not in output
    assert "parcel" in output


async def _collected(row: dict[str, Any], answer: Any) -> list[dict[str, Any]]:
    import asyncio

    results = await asyncio.to_thread(collect, NAME, model=ScriptedModel(answer), input=[row])
    return [json.loads(rollout.encode()) for rollout in results.rollouts]


async def test_commands_have_no_network_and_a_time_limit() -> None:
    command = "timeout 5 bash -c 'echo > /dev/tcp/1.1.1.1/53' && echo reached || echo closed; sleep 60"
    environment = Environment.load(NAME).copy()
    environment.configure({"resources.step_timeout": 1.0})
    task = environment.task(row_of("memo"))
    async with environment.share() as shared:
        session: Any = environment.session(shared)
        await session.open(task)
        try:
            output = json.loads(await session.call("bash", json.dumps({"command": command})))
        finally:
            await session.close()
    assert "closed" in output["output"]
    assert "timed out" in output["ended"]


@together
async def test_a_set_up_script_prepares_both_sandboxes(judge: Judge) -> None:
    row = {**row_of("paginator"), "setup_script": "echo ready > ~/prepared", "hide_expected": True}
    task = Environment.load(NAME).task(row)
    repair = command_of(qualify.oracle(task))
    uses = 'echo \'import os; READY = open(os.environ["HOME"] + "/prepared").read()\' >> paginator/pages.py'
    verdict = await judge(row, played("cat ~/prepared", repair, uses))
    assert isinstance(verdict, Verdict), verdict
    assert verdict.reward == 1.0


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"setup_script": "exit 3"}, "set-up script ended with exit code 3"),
        (
            {"setup_script": "true", "setup_hosts": ["pypi.example"]},
            "wants to reach pypi.example: allow that with --set",
        ),
        ({"files": {"../x": ""}}, "path that is not allowed"),
        ({"test_patch": "--- a/none\n+++ b/none\n@@ -1 +1 @@\n-a\n+b\n"}, "test_patch does not fit"),
        ({"FAIL_TO_PASS": "[]"}, "FAIL_TO_PASS is empty"),
        ({"FAIL_TO_PASS": "what"}, "must be a list of tests"),
        ({"test_patch": "garbage"}, "test_patch is not a diff: 'garbage'"),
        ({"test_patch": ""}, "neither files nor test_patch has tests/test_issue.py"),
        ({"FAIL_TO_PASS": ["tests/nosuch.py::t"]}, "FAIL_TO_PASS names tests/nosuch.py::t, but neither files nor"),
        ({"PASS_TO_PASS": ["tests/nosuch.py::t"]}, "PASS_TO_PASS names tests/nosuch.py::t, but neither files nor"),
        ({"PASS_TO_PASS": ["tests/test_issue.py::test_nosuch"]}, "but tests/test_issue.py has no such test"),
        ({"PASS_TO_PASS": ["tests/test_issue.py"]}, "not of the form FILE::TEST"),
        ({"files": None, "image_name": "mine:1", "test_patch": "garbage"}, "test_patch is not a diff: 'garbage'"),
    ],
)
@together
async def test_a_row_that_cannot_be_judged_fails_without_a_reward(
    judge: Judge, fields: dict[str, Any], cause: str
) -> None:
    failure = await judge({**row_of("paginator"), **fields}, "Done.")
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.stage) == ("bad_row", failure.stage if "must be" in cause else "open")
    assert cause in failure.cause


@pytest.mark.parametrize("name", ["mini_swe_agent", "mini_swe_agent_2"])
@together
async def test_published_rows_are_read_and_need_their_image(judge: Judge, name: str) -> None:
    for row in shared_rows(name):
        task: Any = Environment.load(NAME).task(row)
        assert task.FAIL_TO_PASS
        assert row["problem_statement"].strip()[:40] in task.input[0]["content"]
        assert "/testbed" in task.input[0]["content"]
        failure = await judge(row, "Done.", sandbox={"provider": "bubblewrap"})
        assert isinstance(failure, Failure)
        assert (failure.kind, failure.stage) == ("bad_row", "open")
        assert "set it to oci" in failure.cause


@together
async def test_a_row_with_neither_files_nor_an_image_is_a_bad_row(judge: Judge) -> None:
    failure = await judge({**row_of("memo"), "files": None, "instance_id": "x"}, "Done.")
    assert isinstance(failure, Failure)
    assert failure.cause == "the row has neither files nor image_name, and its instance_id names no image"
