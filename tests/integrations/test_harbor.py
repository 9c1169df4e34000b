"""Harbor's task folders run unchanged, their verdicts are hard to forge, and failures say why."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from harbor_boxes import TASKS, needs_images, new_cache, played
from hypothesis import given
from hypothesis import strategies as st
from ludus_data.convert import convert
from ludus_qualify import planting

from ludus import Environment, Failure, UserError
from ludus.environments.terminal.settings import TaskSettings, filled
from ludus.environments.terminal.verdicts import rewards_of
from ludus.sandbox.bases import Bases

#: Where bases of this machine are, whatever cache other tests of this file have.
OWN_CACHE = os.environ.get("LUDUS_CACHE")

#: Tasks whose solution earns 1 on a base without packages.
OFFLINE = ("hello", "stages", "service", "separate", "verifier_image", "hostile", "steps", "named")


@pytest.fixture(scope="module")
def base() -> Any:
    """One cache for the tests of this file: each image is built once."""
    with pytest.MonkeyPatch.context() as patch:
        yield new_cache(patch)


def running(*commands: str) -> list[Any]:
    return [*({"call": "bash", "arguments": {"command": command}} for command in commands), "Done."]


def planted(*names: str) -> list[Any]:
    """Scripts that attack the grader in these ways."""
    scripts = planting.scripts()
    return [running(scripts[name]) for name in names]


@needs_images
def test_a_folder_of_tasks_runs_unchanged(
    base: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUDUS_TEST_SECRET", "of the host")
    for name in OFFLINE:
        shutil.copytree(TASKS / name, tmp_path / name)
    rollouts = played(f"harbor:{tmp_path}", None, ["Done."], **base)
    verdicts = [(rollout.job.row["task_name"], rollout.reward, rollout.error) for rollout in rollouts]
    assert verdicts == [(name, reward, None) for name in sorted(OFFLINE) for reward in (1.0, 0.0)]


@needs_images
@pytest.mark.slow
def test_packages_come_from_the_registries_if_the_operator_lets_builds_reach_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if OWN_CACHE is None:
        monkeypatch.delenv("LUDUS_CACHE", raising=False)
    else:
        monkeypatch.setenv("LUDUS_CACHE", OWN_CACHE)
    if Bases().find("debian:bookworm-slim") is None:
        pytest.skip("there is no base: ludus sandbox base debian --for debian:bookworm-slim")
    (rollout,) = played(f"harbor:{TASKS / 'packages'}", **{"resources.build_network": True})
    assert rollout.reward == 1.0


@needs_images
def test_a_test_script_that_needs_a_network_is_a_failure_with_its_cause(base: dict[str, Any]) -> None:
    (rollout,) = played(f"harbor:{TASKS / 'needs_network'}", **base)
    assert rollout.reward is None
    assert rollout.error is not None
    assert "cannot run without a network: /tests/test.sh: line 2: uvx: command not found" in rollout.error.cause


@needs_images
def test_a_model_cannot_claim_that_the_network_is_missing(base: dict[str, Any], tmp_path: Path) -> None:
    shutil.copytree(TASKS / "hello", tmp_path / "task")
    test = (tmp_path / "task/tests/test.sh").read_text()
    (tmp_path / "task/tests/test.sh").write_text(test.replace("#!/bin/bash\n", "#!/bin/bash\ncat /app/hello.txt\n"))
    (rollout,) = played(str(tmp_path / "task"), running("echo Could not resolve host > hello.txt"), **base)
    assert (rollout.reward, rollout.error) == (0.0, None)


#: A shell that writes the reward, in front of the judge's own on PATH.
FORGES = """printf '#!/bin/sh\\nmkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt\\n' > /tmp/forged
chmod 755 /tmp/forged; mkdir -p /usr/local/bin; cp /tmp/forged /usr/local/bin/bash
cp /tmp/forged /bin/bash.new; mv /bin/bash.new /bin/bash"""


@needs_images
def test_a_planted_shell_forges_nothing_in_a_fresh_box(base: dict[str, Any]) -> None:
    (fresh,) = played(f"harbor:{TASKS / 'hello'}", running(FORGES), **base)
    assert (fresh.reward, fresh.error) == (0.0, None)
    assert fresh.verdict is not None
    assert fresh.verdict.values["left_out"] == 2
    assert fresh.verdict.values["problem"].endswith("; its judge saw no change to /bin/bash, /usr/local/bin/bash")
    (same,) = played(f"harbor:{TASKS / 'hello'}", running(FORGES), **base, **{"resources.verdict": "same_box"})
    assert same.verdict is not None
    assert (same.reward, same.verdict.values["same_box"]) == (1.0, True)  # as the page says


@needs_images
def test_what_a_model_plants_earns_nothing_in_a_fresh_box(base: dict[str, Any]) -> None:
    names = ("path", "background_writer", "own_tests", "linked_folders")
    rollouts = played(f"harbor:{TASKS / 'hello'}", *planted(*names), **base)
    assert [(rollout.reward, rollout.error) for rollout in rollouts] == [(0.0, None)] * len(names)


@needs_images
@pytest.mark.slow
def test_no_cheat_earns_anything_at_any_task(base: dict[str, Any], tmp_path: Path) -> None:
    for name in OFFLINE:
        shutil.copytree(TASKS / name, tmp_path / name)
    rollouts = played(f"harbor:{tmp_path}", *planted(*planting.NAMES), **base)
    assert [(rollout.reward, rollout.error) for rollout in rollouts] == [(0.0, None)] * len(rollouts)


@needs_images
def test_a_script_that_the_model_breaks_in_its_own_box_earns_nothing(base: dict[str, Any]) -> None:
    breaks = running("printf '#!/bin/sh\\nexit 0\\n' > bash; chmod 755 bash; mv bash /bin/bash")
    (rollout,) = played(f"harbor:{TASKS / 'hello'}", breaks, **base, **{"resources.verdict": "same_box"})
    assert rollout.reward == 0.0
    assert rollout.verdict is not None
    assert rollout.verdict.values["problem"].endswith("; after the task's own solution it writes a reward")


#: What an agent does to its box, and what its judge must see of it: `+` is there, `-` is not.
CHANGES = """mkdir -p /srv/made/deep; echo a > /srv/made/deep/file; chmod 700 /srv/made
echo b > /data/file; echo c > /answer; rm /app/words.txt; mkdir /app/words.txt; echo d > /tmp/result
ln -s /srv/made/deep/file /app/link; ln -s /tests/expected /app/forged; ln -s / /app/top; ln -s top/tests/x /app/far
echo e > /etc/profile; echo f > /usr/local/bin/tool; echo g > $HOME/.bashrc; echo h > /app/conftest.py
mkdir -p .git/hooks; echo i > .git/hooks/pre-commit; echo j > .git/HEAD; echo k > /pytest.ini; chmod 000 /srv/made/deep
mkdir -p /opt/tools/share; echo l > /opt/tools/share/kept"""

SEEN = """#!/bin/bash
right=1
is() { [ "$1" = "$2" ] || { echo "missing: $1, not $2"; right=0; }; }
not() { [ ! -e "$1" ] && [ ! -L "$1" ] || { echo "there: $1"; right=0; }; }
chmod 700 /srv/made/deep
is "$(cat /srv/made/deep/file /data/file /answer /tmp/result /app/link .git/HEAD | tr -d '\n')" abcdaj
is "$(cat /opt/tools/share/kept)" l
[ -d /app/words.txt ] || right=0
for f in /app/forged /app/far /usr/local/bin/extra $HOME/.bashrc /app/conftest.py .git/hooks/pre-commit /pytest.ini; do
    not $f
done
is "$(cat /usr/local/bin/tool)" "$(printf '#!/bin/sh\nwc -w < "$WORDS"')"
echo $right > /logs/verifier/reward.txt
"""


@needs_images
def test_a_file_that_the_images_shell_reads_is_not_the_models(base: dict[str, Any], tmp_path: Path) -> None:
    shutil.copytree(TASKS / "hello", tmp_path / "task")
    recipe = tmp_path / "task/environment/Dockerfile"
    recipe.write_text(recipe.read_text() + "\nENV BASH_ENV=/opt/start.sh\n")
    forged = "mkdir -p /opt; echo 'echo 1 > /logs/verifier/reward.txt; exit 0' > /opt/start.sh"
    (rollout,) = played(f"harbor:{tmp_path / 'task'}", running(forged), **base)
    assert rollout.reward == 0.0


@needs_images
def test_a_judge_sees_changes_to_files_but_not_to_what_its_own_programs_are_made_of(
    base: dict[str, Any], tmp_path: Path
) -> None:
    shutil.copytree(TASKS / "stages", tmp_path / "task")
    (tmp_path / "task/tests/test.sh").write_text(SEEN)
    shutil.rmtree(tmp_path / "task/solution")
    (rollout,) = played(f"harbor:{tmp_path / 'task'}", running(CHANGES), **base)
    assert rollout.verdict is not None
    assert rollout.reward == 1.0, rollout.verdict.values
    assert len(rollout.verdict.values["sealed"]) == 64


@needs_images
def test_a_task_whose_answer_is_an_installed_program_says_so_or_fails_with_the_remedy(
    base: dict[str, Any], tmp_path: Path
) -> None:
    for name, line in {
        "asks": "",
        "declares": 'artifacts = ["/usr/local/bin/answer"]\n',
        "stays": '[ludus]\nverdict = "same_box"\n',
    }.items():
        shutil.copytree(TASKS / "hello", tmp_path / name)
        task = (tmp_path / name / "task.toml").read_text()
        (tmp_path / name / "task.toml").write_text(task + line if "[" in line[:1] else line + task)
        (tmp_path / name / "solution/solve.sh").write_text(
            "mkdir -p /usr/local/bin; cd /usr/local/bin; printf '#!/bin/sh\\necho 42\\n' > answer; chmod 755 answer\n"
        )
        (tmp_path / name / "tests/test.sh").write_text(
            'if [ "$(answer)" = 42 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n'
        )
    asks, declares, stays = played(f"harbor:{tmp_path}", **base)
    assert (declares.reward, stays.reward) == (1.0, 1.0)
    assert asks.error is not None
    assert asks.error.cause == (
        "the task's own solution fails without /usr/local/bin/answer: name it among the artifacts of task.toml, or "
        "choose resources.verdict=same_box"
    )


@needs_images
def test_a_missing_reward_is_a_failure_unless_the_solution_gets_one(base: dict[str, Any], tmp_path: Path) -> None:
    for name, test in {"none": "true", "nan": "echo nan > /logs/verifier/reward.txt"}.items():
        shutil.copytree(TASKS / "hello", tmp_path / name)
        (tmp_path / name / "tests/test.sh").write_text(test)
    shutil.copytree(TASKS / "hello", tmp_path / "broken")
    with (tmp_path / "broken/tests/test.sh").open("a") as script:
        script.write("[ -e /app/bad ] && rm /logs/verifier/reward.txt; true\n")
    rollouts = played(f"harbor:{tmp_path}", running("touch /app/bad"), **base)
    assert [rollout.reward for rollout in rollouts] == [0.0, None, None]
    assert [rollout.error and rollout.error.kind for rollout in rollouts] == [None, "bad_verdict", "bad_verdict"]


@needs_images
def test_programs_that_the_model_planted_do_not_reach_a_separate_verifier(base: dict[str, Any]) -> None:
    (rollout,) = played(f"harbor:{TASKS / 'separate'}", running(FORGES), **base)
    assert (rollout.reward, rollout.error) == (0.0, None)
    links = running("ln -s /expected answers/number.txt; ln -s /tests x; echo a > notes.txt")
    (rollout,) = played(f"harbor:{TASKS / 'verifier_image'}", links, **base)
    assert rollout.reward == 0.0


@needs_images
def test_a_step_that_is_not_good_enough_ends_the_task(base: dict[str, Any]) -> None:
    skip = [{"call": "finish_step", "arguments": {}}, *running("echo 1 > one; cp given two")]
    (rollout,) = played(f"harbor:{TASKS / 'steps'}", skip, **base)
    assert rollout.reward == 0.0


FINISH = {"call": "finish_step", "arguments": {}}

#: What an agent that solved the first step does so that the second one does not begin.
IN_THE_WAY = {
    "a folder for a file": ["mkdir -p given/x", FINISH],
    "three times": ["mkdir -p given/x", FINISH, FINISH, FINISH],
    "at once": [{"calls": [{"name": "finish_step", "arguments": {}}] * 3}],
    "no shell for the set-up script": [
        "printf '#!/bin/sh\\nexit 3\\n' > /tmp/b; chmod 755 /tmp/b; mv /tmp/b /bin/bash",
        FINISH,
    ],
}


@needs_images
def test_a_first_step_is_rewarded_once_however_the_second_is_kept_from_beginning(
    base: dict[str, Any], tmp_path: Path
) -> None:
    shutil.copytree(TASKS / "steps", tmp_path / "task")
    (tmp_path / "task/steps/second/workdir/setup.sh").write_text("#!/bin/bash\ntrue\n")
    scripts = []
    for way in IN_THE_WAY.values():
        turns = [{"call": "bash", "arguments": {"command": turn}} if isinstance(turn, str) else turn for turn in way]
        scripts.append([*running("echo 1 > one")[:1], *turns, "Done."])
    rollouts = played(f"harbor:{tmp_path / 'task'}", *scripts, **base)
    assert [(rollout.reward, rollout.error) for rollout in rollouts] == [(0.5, None)] * len(IN_THE_WAY)


@needs_images
def test_an_image_of_the_settings_wins_and_says_so(base: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    image = next(iter(base["resources.bases"].values()))
    (rollout,) = played(f"harbor:{TASKS / 'stages'}", running("ls /app"), **{"resources.sandbox.image": image})
    assert rollout.reward == 0.0
    assert f"resources.sandbox.image={image} is used in place of the task's Dockerfile" in caplog.text


def test_rows_travel_with_their_files_and_need_no_base_to_be_written(tmp_path: Path) -> None:
    converted = convert(f"harbor:{TASKS / 'hello'}", tmp_path / "rows.jsonl")
    row = json.loads((tmp_path / "rows.jsonl").read_text())
    assert (converted.rows, row["task_name"]) == (1, "hello")
    assert Environment.load("terminal").task(row).solution["solve.sh"].startswith("#!/bin/bash")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("path", "text", "problem"),
    [
        ("instruction.md", " \n", "task has no instruction. Write it into instruction.md"),
        ("task.toml", "[agent\n", r"task.toml is not valid TOML: .*line 1"),
        ("task.toml", "[agent]\ntimeout_sec = 'soon'\n", "task.toml: agent.timeout_sec must be a number of seconds"),
        ("task.toml", "[environment]\ngpus = 2\n", "task.toml: environment.gpus asks for GPUs"),
        ("task.toml", "[environment.tpu]\ntype = 'v6e'\n", "task.toml: environment.tpu asks for a TPU"),
        ("task.toml", "[environment]\nos = 'Windows'\n", "task.toml: environment.os must be linux"),
        ("task.toml", "[[steps]]\nname = '../x'\n", "there is no folder steps/../x"),
        ("environment/Dockerfile", "FROM elsewhere:1\n", "environment/Dockerfile:1: FROM elsewhere:1: no base"),
    ],
)
def test_bad_input_is_one_line_with_its_place(tmp_path: Path, path: str, text: str, problem: str) -> None:
    shutil.copytree(TASKS / "hello", tmp_path / "task")
    (tmp_path / "task" / path).write_text(text)
    settings = {"resources.bases": {"ubuntu:*": str(tmp_path)}}
    with pytest.raises(UserError, match=problem) as caught:
        played(f"harbor:{tmp_path / 'task'}", ["Done."], **settings)
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "task") in str(caught.value)


@needs_images
def test_a_task_that_cannot_be_built_is_a_bad_row(base: dict[str, Any], tmp_path: Path) -> None:
    for name, path, text in (
        ("fails", "Dockerfile", "FROM ubuntu:1\nRUN true\nRUN false\n"),
        ("services", "docker-compose.yaml", "services: {main: {}, db: {}}\n"),
    ):
        shutil.copytree(TASKS / "hello", tmp_path / name)
        (tmp_path / name / "environment" / path).write_text(text)
    fails, services = (rollout.error for rollout in played(f"harbor:{tmp_path}", ["Done."], **base))
    assert fails is not None
    assert services is not None
    assert (fails.kind, services.kind) == ("bad_row", "bad_row")
    assert "fails/environment/Dockerfile:3: the step" in fails.cause
    assert "the services main, db, and a task has one" in services.cause


def test_a_variable_of_the_host_must_be_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "secret")
    assert filled({"X": "${A_KEY:-none}/${OTHER:-}"}, []) == {"X": "none/"}
    assert filled({"X": "${A_KEY}"}, ["A_KEY"]) == {"X": "secret"}
    with pytest.raises(Failure, match="A_KEY of this machine"):
        filled({"X": "${A_KEY}"}, [])


def test_hosts_are_those_of_the_phase_or_of_the_operator() -> None:
    allow = {"network_mode": "allowlist", "allowed_hosts": ["a.example"]}
    settings = TaskSettings.of(
        {"environment": {"network_mode": "public"}, "agent": allow, "verifier": {"network_mode": "no-network"}}
    )
    assert settings.hosts("setup", ["o.example"]) == ["o.example"]
    assert settings.hosts("agent", ["o.example"]) == ["a.example"]
    assert settings.hosts("verify", ["o.example"]) == []


NUMBERS = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**53), 2**53))


@given(st.dictionaries(st.text(max_size=8), NUMBERS, min_size=1, max_size=4))
def test_named_finite_numbers_are_read_as_they_were_written(values: dict[str, float]) -> None:
    assert rewards_of(json.dumps(values), "r.json") == values


@given(st.text(max_size=20))
def test_any_text_is_a_finite_number_or_a_failure(text: str) -> None:
    for path in ("r.json", "r.txt"):
        with contextlib.suppress(Failure):
            assert all(map(math.isfinite, rewards_of(text, path).values()))
