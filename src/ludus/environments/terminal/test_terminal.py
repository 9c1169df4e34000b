"""Tasks in Harbor's layout are prepared, worked on in a shell, and judged by their own test scripts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from ludus_qualify import planting

from ludus import Environment, Failure, Response, ScriptedModel, UserError, Verdict, collect
from ludus.environments.terminal import build, qualify
from ludus.environments.terminal.tasks import read_task, stream
from ludus.environments.terminal.verdicts import reward_of, rewards_of
from ludus.response import function_call, function_call_output, message
from ludus.testing import judge, judging, needs_sandbox

NAME = "terminal"
DATA = Path(__file__).parent / "data"
ROWS = list(stream(0, path=str(DATA / "tasks")))
NAMES = [row["task_name"] for row in ROWS]


def test_the_shipped_rows_are_those_of_the_task_folders() -> None:
    assert (DATA / "example.jsonl").read_text(encoding="utf-8") == build.written(str(DATA / "tasks"))
    assert len(ROWS) == 8


#: Tests that share the sandboxes of the file.
together = pytest.mark.asyncio(loop_scope="module")
Outcomes = Callable[..., Awaitable[dict[str, Any]]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outcomes() -> AsyncIterator[Outcomes]:
    """The rewards of several scripts for one row; a failure's kind and cause where there is none."""
    async with judging(NAME) as judged:

        async def play(row: dict[str, Any], scripts: dict[str, Any], **settings: Any) -> dict[str, Any]:
            by_name: dict[str, Any] = {}
            for name, script in scripts.items():
                result = await judged(json.loads(json.dumps(row)), played(script), **settings)
                by_name[name] = f"{result.kind}: {result.cause}" if isinstance(result, Failure) else result.reward
            return by_name

        yield play


def played(script: Any) -> Response:
    """A response whose commands run before the verdict."""
    items = []
    for number, turn in enumerate(script[:-1] if isinstance(script, list) else ()):
        items += [
            function_call("bash", turn["arguments"], call_id=f"c{number}"),
            function_call_output(f"c{number}", ""),
        ]
    return Response.of(*items, message("Done."))


def small(test: str, **fields: Any) -> dict[str, Any]:
    """A row with one test script."""
    return {**ROWS[0], "environment": {"a.txt": "hello\n"}, "tests": {"test.sh": test}, **fields}


@needs_sandbox()
@pytest.mark.parametrize("row", ROWS, ids=NAMES)
@together
async def test_the_solution_passes_and_doing_nothing_fails(outcomes: Outcomes, row: dict[str, Any]) -> None:
    task = Environment.load(NAME).task(row)
    outcome = await outcomes(row, {"right": qualify.oracle(task), "nothing": []})
    assert outcome == {"right": 1.0, "nothing": 0.0}


@needs_sandbox()
@together
async def test_work_on_the_grader_and_work_that_is_gone_earn_nothing(outcomes: Outcomes) -> None:
    task = Environment.load(NAME).task(ROWS[0])
    planted = {name: qualify.shell(task, script) for name, script in planting.scripts().items()}
    wrong = {**planted, **qualify.breaking(task)}
    assert await outcomes(ROWS[0], wrong) == dict.fromkeys(wrong, 0.0)


@needs_sandbox()
async def test_the_verdict_says_what_the_test_script_missed() -> None:
    test = "echo 0 > /logs/verifier/reward.txt; echo looking; echo 'AssertionError: no report' >&2"
    verdict = await judge(NAME, small(test), "Done.")
    assert isinstance(verdict, Verdict)
    assert verdict.values["problem"] == "the test script said: AssertionError: no report"


@needs_sandbox()
@together
async def test_files_that_never_end_hang_the_test_script_and_earn_nothing(outcomes: Outcomes) -> None:
    row = small("cat a.txt > /dev/null; echo 1 > /logs/verifier/reward.txt", config={"verifier": {"timeout_sec": 1.0}})
    assert await outcomes(row, {"": qualify._running("rm a.txt; mkfifo a.txt")}) == {"": 0.0}


#: Ways to let a file of the judge be the answer. `..` is HOME seen from `~/app`, and the root seen from `/app`.
LINKS = """
ln -s /tests/expected /app/out1
ln -s ~/tests/expected /app/out2
ln -s ../tests/expected /app/out3
mkdir a; ln -s ../../tests a/e; ln -s a/e/expected out4
ln -s /tests b; ln -s b/expected out5
ln -s /proc/self/root/tests/expected out6
ln -s ../proc/self/cwd/../tests/expected out7
ln -s /tests/expected ~/one; ln -s ~/one out8
mkdir c; ln -s /tests/expected c/x; ln -s c/x out9; chmod 555 c
echo 1 > ~/tests/expected; ln ~/tests/expected out10
ln -s /tmp/expected out11
ln -s ~/expected out12
ln -s /tests/expected $'new\\nline'; ln -s $'new\\nline' out13
ln -s /proc/self/fd/0 out14
"""

#: Ways to a right answer in which links have a part.
HONEST = """
echo the answer > real; ln -s /app/real out1
ln -s real out2
echo the answer > ~/real; ln -s ~/real out3
mkdir a; ln -s ../real a/x; ln -s a/x out4; ln -s /usr/bin/env a/env
echo the answer > out5; ln -s nowhere lost; ln -s loop loop
"""

COUNT = """
cp /tests/expected /tmp/expected; cp /tests/expected ~/expected; right=0
for each in out*; do cat $each < /tests/expected | cmp -s - /tests/expected && right=$((right + 1)); done
echo $right > /logs/verifier/reward.txt
"""


@needs_sandbox()
@together
async def test_a_link_out_of_the_working_folder_is_no_answer(outcomes: Outcomes) -> None:
    row = small("", tests={"test.sh": COUNT, "expected": "the answer\n"})
    ways = {"links to the judge": qualify._running(LINKS), "links inside": qualify._running(HONEST)}
    assert await outcomes(row, ways) == {"links to the judge": 0.0, "links inside": 5.0}


@needs_sandbox()
@pytest.mark.slow
@together
async def test_a_right_answer_counts_whatever_the_model_did_to_home(outcomes: Outcomes) -> None:
    row = small("grep -q done /app/out && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt")
    ways = ("head -c 300M /dev/zero > ~/big", "chmod 000 ~", "mkdir ~/x; chmod 000 ~/x", "chmod 555 /app ~")
    outcome = await outcomes(row, {way: qualify._running(f"echo done > out; {way}; true") for way in ways})
    assert outcome == dict.fromkeys(ways, 1.0)


#: What a model may leave so that its judge's box cannot be made.
IN_THE_WAY = {
    "deep": 'cd ~; python3 -c \'import os; [(os.mkdir(name), os.chdir(name)) for name in [".deep", *["a"] * 1200]]\'',
    "shut": "mkdir -p ~/.shut/in; chmod 000 ~/.shut/in ~/.shut /app ~",
    "odd names": "touch $'\\377' $'a\\nb'; ln -s $'\\377' $'l\\377'; mkdir ~/.$'d\\377'",
    "a file for a folder": "cd /; rm -rf ~/app; echo > ~/app; rm -rf ~/logs; echo > ~/logs",
    "no folder": "cd /; rm -rf ~/* /tmp/*",
}


@needs_sandbox()
@pytest.mark.slow
@together
async def test_what_stands_in_the_way_of_the_judge_earns_nothing(outcomes: Outcomes) -> None:
    row = small("grep -q done /app/out && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt")
    ways = {name: qualify._running(f"{script}; true") for name, script in IN_THE_WAY.items()}
    assert await outcomes(row, ways) == dict.fromkeys(ways, 0.0)


@needs_sandbox()
@together
async def test_a_module_that_the_model_names_like_one_of_python_is_not_imported(outcomes: Outcomes) -> None:
    test = "cd /app && python3 -m json.tool a.json && python3 -c 'import main'; echo $((! $?))"
    scripts = {
        "module": "mkdir json; echo 'import os; os._exit(0)' | tee main.py json.py json/__init__.py > json/tool.py",
        "honest": "echo '{}' > a.json; echo > main.py",
    }
    plays = {name: qualify.shell(None, command) for name, command in scripts.items()}
    row = small(f"{test} > /logs/verifier/reward.txt")
    assert await outcomes(row, plays) == {"module": 0.0, "honest": 1.0}


@needs_sandbox()
@together
async def test_the_tests_come_after_the_model_and_its_processes_do_not(outcomes: Outcomes) -> None:
    row = small(
        "ls /app > ~/seen; ps -e > /dev/null; cat a.txt; grep -q hello a.txt && echo 0.5 > /logs/verifier/reward.txt"
    )
    look = "ls /tests /solution; pgrep -f test.sh; (setsid sleep 100 &) ; echo more > b.txt"
    assert await outcomes(row, {"": qualify._running(look)}) == {"": 0.5}


@needs_sandbox()
@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("echo 1 > /logs/verifier/reward.txt", 1.0),
        ('echo \'{"reward": 0.25, "other": 3}\' > /logs/verifier/reward.json', 0.25),
        ("echo nan > /logs/verifier/reward.txt", "bad_verdict: the test script wrote no finite number"),
        ("exit 0", "bad_verdict: the test script wrote no reward and ended with exit code 0"),
        ("sleep 60; echo 1 > /logs/verifier/reward.txt", 0.0),
        ("mkdir /logs/verifier/reward.txt", "bad_verdict"),
    ],
)
@together
async def test_the_reward_is_what_the_test_script_writes(outcomes: Outcomes, test: str, expected: Any) -> None:
    config = {"version": "1.0", "verifier": {"timeout_sec": 1.5}}
    outcome = (await outcomes(small(test, config=config), {"": []}))[""]
    assert outcome == expected if isinstance(expected, float) else outcome.startswith(expected), outcome


@needs_sandbox()
@together
async def test_processes_of_a_task_with_services_stay_until_the_verdict(outcomes: Outcomes) -> None:
    test = "kill -0 $(cat /app/pid) && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt"
    starts = qualify._running("sleep 1000 > /dev/null 2>&1 & echo $! > /app/pid")
    service = {"version": "1.0", "ludus": {"background": True}}
    assert await outcomes(small(test, config=service), {"": starts}) == {"": 1.0}
    assert await outcomes(small(test, config={"version": "1.0"}), {"": starts}) == {"": 0.0}


@needs_sandbox()
@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"environment": {"Dockerfile": "FROM x:unknown"}}, "no base on this machine stands for this image"),
        ({"environment": {"setup.sh": "exit 4"}}, "set-up script ended with exit code 4"),
        ({"environment": {"../x": ""}}, "path that is not allowed"),
        ({"tests": {"test.sh": {"base64": "!"}}}, "neither a text nor base64"),
        ({"config": {"verifier": {"timeout_sec": "soon"}}}, "verifier.timeout_sec must be"),
        ({"config": {"ludus": {"setup_hosts": ["a.example"]}}}, "wants to reach a.example"),
    ],
)
@together
async def test_a_task_that_cannot_be_prepared_is_a_bad_row(
    outcomes: Outcomes, fields: dict[str, Any], cause: str
) -> None:
    outcome = (await outcomes(small("true", **fields), {"": []}))[""]
    assert outcome.startswith("bad_row: ")
    assert cause in outcome


@needs_sandbox()
@together
async def test_a_task_with_an_image_needs_a_provider_of_images(outcomes: Outcomes) -> None:
    config = {"version": "1.0", "environment": {"docker_image": "example/task:1"}}
    outcome = (await outcomes(small("true", config=config), {"": []}, **{"sandbox.provider": "bubblewrap"}))[""]
    assert "example/task:1" in outcome
    assert "oci" in outcome


@pytest.mark.parametrize(
    ("text", "path", "reward"),
    [
        (" 0.5\n", "r.txt", 0.5),
        ("1", "r.json", 1.0),
        ('{"score": 2}', "r.json", 2.0),
        ('{"a": 1, "reward": 0}', "r.json", 0),
    ],
)
def test_a_reward_file_holds_one_number(text: str, path: str, reward: float) -> None:
    assert reward_of(rewards_of(text, path)) == reward


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("", "r.txt"),
        ("inf", "r.txt"),
        ("1 2", "r.txt"),
        ("NaN", "r.json"),
        ("[1]", "r.json"),
        ('{"a": 1, "b": 2}', "r.json"),
    ],
)
def test_other_reward_files_are_failures(text: str, path: str) -> None:
    with pytest.raises(Failure, match="no finite number|none is called reward"):
        reward_of(rewards_of(text, path))


def test_a_folder_of_tasks_is_a_dataset(tmp_path: Path) -> None:
    folder = tmp_path / "hello"
    (folder / "tests").mkdir(parents=True)
    (folder / "environment").mkdir()
    (folder / "task.toml").write_text('version = "1.0"\n[verifier]\ntimeout_sec = 5.0\n')
    (folder / "instruction.md").write_text("Say hello.\n")
    (folder / "tests" / "test.sh").write_text("echo 1 > /logs/verifier/reward.txt\n")
    (folder / "environment" / "blob").write_bytes(b"\xff\x00")
    (folder / "environment" / "link").symlink_to("/etc/passwd")
    row = read_task(folder)
    assert row["environment"] == {"blob": {"base64": "/wA="}}
    assert "Say hello." in row["responses_create_params"]["input"][0]["content"]
    assert [task["task_name"] for task in stream(0, path=str(tmp_path))] == ["hello"]
    assert [task["task_name"] for task in stream(0, path=str(folder))] == ["hello"]


def test_a_folder_of_terminal_bench_1_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "task.yaml").write_text("instruction: Do it.\nmax_test_timeout_sec: 9\n")
    (tmp_path / "run-tests.sh").write_text("true\n")
    row = read_task(tmp_path)
    assert row["config"] == {"version": "terminal-bench-1", "verifier": {"timeout_sec": 9}}
    assert row["tests"] == {"test.sh": "true\n"}


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({}, "holds no task"),
        ({"task.toml": "= 1"}, "not valid TOML"),
        ({"task.toml": "", "instruction.md": " "}, "has no instruction"),
        ({"task.toml": "", "instruction.md": "Do it."}, "has no tests/test.sh"),
        ({"task.yaml": "[]"}, "must hold a mapping"),
    ],
)
def test_a_folder_that_is_no_task_is_a_mistake_in_one_line(tmp_path: Path, files: dict[str, str], problem: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=problem) as caught:
        list(stream(0, path=str(tmp_path)))
    assert "\n" not in str(caught.value)


@needs_sandbox()
def test_slow_commands_of_one_turn_end_within_the_seconds_of_one_command() -> None:
    environment = Environment.load(NAME).copy()
    environment.configure({"resources.step_timeout": 1, "limits.tool": 2.5, "resources.sandbox.warm": 0})
    sleeps = {"calls": [{"name": "bash", "arguments": {"command": "sleep 60"}}] * 4}
    (rollout,) = collect(environment, input=[ROWS[0]], model=ScriptedModel([sleeps, "Done."])).rollouts
    assert (rollout.error, rollout.reward) == (None, 0.0)


def test_deadlines_of_a_rollout_are_longer_than_those_of_its_task(tmp_path: Path) -> None:
    task = tmp_path / "slow"
    (task / "tests").mkdir(parents=True)
    (task / "instruction.md").write_text("Wait.")
    (task / "tests/test.sh").write_text("sleep 5000")
    (task / "task.toml").write_text("[agent]\ntimeout_sec = 9000\n[verifier]\ntimeout_sec = 6000\n")
    for environment in (Environment.load(f"harbor:{task}"), Environment.load(NAME)):
        limits = environment.limits_for(environment.task(read_task(task)))
        assert min(limits.verify, limits.tool) > 3 * 6000
        assert limits.rollout > 9000 + limits.verify
        quick = environment.limits_for(environment.task(ROWS[0]))
        assert (quick.verify, quick.rollout) == (environment.limits.verify, environment.limits.rollout)


def test_the_waits_of_a_task_are_part_of_its_deadlines() -> None:
    environment = Environment.load(NAME)
    check = {"command": "true", "start_period_sec": 3000.0, "retries": 10}
    collect_logs = {"command": "true", "timeout_sec": 4000.0}
    row = small("true", config={"environment": {"healthcheck": check}, "verifier": {"collect": [collect_logs]}})
    limits = environment.limits_for(environment.task(row))
    assert limits.open > 660 + 3000 + 10 * 30
    assert limits.verify > 3 * 600 + 4000


def test_a_deadline_that_the_user_sets_stays_and_a_task_that_cannot_be_read_has_the_usual_ones() -> None:
    environment = Environment.load(NAME).copy()
    environment.configure({"limits.verify": 7})
    limits = environment.limits_for(environment.task(small("true", config={"verifier": {"timeout_sec": 6000.0}})))
    assert (limits.verify, limits.tool > 18_000) == (7, True)
    assert environment.limits_for(environment.task(small("true", config={"verifier": 1}))) is environment.limits


@needs_sandbox()
def test_rows_of_a_file_are_judged_although_their_scripts_run_longer_than_the_environments_deadlines(
    tmp_path: Path,
) -> None:
    environment = Environment.load(NAME).copy()
    environment.configure({"resources.sandbox.warm": 0})
    short = {"open": 0.1, "tool": 0.1, "verify": 0.1, "rollout": 0.1}
    row = small("sleep 0.5; echo 1 > /logs/verifier/reward.txt", config={"verifier": {"timeout_sec": 60.0}})
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    environment.limits = environment.limits.model_copy(update=short)
    (rollout,) = collect(environment, input=tmp_path / "rows.jsonl", model=ScriptedModel(["Done."])).rollouts
    assert (rollout.error, rollout.reward) == (None, 1.0)


@needs_sandbox()
def test_a_folder_is_collected_by_its_path(tmp_path: Path) -> None:
    settings = {"data.path": str(DATA / "tasks" / "repair_config")}
    solve = ScriptedModel(qualify.oracle(Environment.load(NAME).task(ROWS[NAMES.index("repair_config")])))
    results = collect(NAME, model=solve, dataset="folder", limit=100, settings=settings)
    assert [rollout.reward for rollout in results.rollouts] == [1.0]


def test_the_process_provider_is_refused_before_the_model_is_asked() -> None:
    model = ScriptedModel(lambda request: pytest.fail("the model was asked"))
    with pytest.raises(UserError, match="sandbox provider process"):
        collect(NAME, model=model, limit=1, settings={"resources.sandbox.provider": "process"})
