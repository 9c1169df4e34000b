"""`ludus chat` with a simulated user: a person plays the assistant, or watches a model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import forked

import ludus

FOLDER = Path(ludus.__file__).parent / "environments" / "user_modeling"
ROWS = [json.loads(line) for line in (FOLDER / "data" / "example.jsonl").read_text().splitlines()]
NUMBER, ROW = next((n, row) for n, row in enumerate(ROWS, start=1) if "-cancel-" in row["id"])
PLAIN = "agent.user=scripted:ludus.agents.plain_user"


def chat(typed: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ludus", "chat", *arguments]
    return forked.run(command, input=typed, capture_output=True, text=True, timeout=300)


def test_a_person_plays_the_assistant_and_the_simulated_user_answers():
    find, cancel = (action["arguments"] for action in ROW["actions"])
    typed = [
        "May I have your email address and postcode?",
        f"find_customer email={find['email']} postcode={find['postcode']}",
        f"cancel_order order_id={cancel['order_id']}",
        f"It is cancelled, and {ROW['communicate'][0][0]} comes back to you.",
    ]
    result = chat("\n".join(typed) + "\n", "user_modeling", "--row", str(NUMBER))
    assert result.returncode == 0, result.stderr
    assert ROW["user"]["goal"] in result.stdout
    assert f"Here you are. email address: {find['email']}; postcode: {find['postcode']}." in result.stdout
    assert "completed, reward 1" in result.stdout
    assert "stopped: user_stop" in result.stdout
    assert "###" not in result.stdout


def test_a_person_can_play_with_simulated_tools():
    judge = "resources.judge=scripted:ludus.environments.conversational_tool_use_simulation.scripted_judge"
    typed = "find_customer phone=0170\nSimulated result for find_customer.\n"
    result = chat(typed, "conversational_tool_use_simulation", "--set", PLAIN, "--set", judge)
    assert "completed, reward 1" in result.stdout, result.stderr


def test_without_a_model_agent_user_must_name_one():
    result = chat("", "user_modeling", "--set", "agent.user=null")
    assert result.returncode == 2
    assert "no model plays the user (agent.user is null). Name a model: --set agent.user=SPEC" in result.stderr


def test_a_model_that_also_plays_the_user_is_shown_once_per_message(tmp_path):
    (tmp_path / "both.yaml").write_text("- Hello there.\n- Goodbye now.\n")
    arguments = ["--model", f"scripted:{tmp_path / 'both.yaml'}", "--set", "agent.user=null"]
    result = chat("/verify\n", "user_modeling", *arguments, "--set", "agent.max_steps=2")
    assert result.returncode == 0, result.stderr
    shown = [line.strip() for line in result.stdout.splitlines() if line.strip() in ("Hello there.", "Goodbye now.")]
    assert shown == ["Hello there.", "Hello there.", "Goodbye now.", "Goodbye now.", "Goodbye now."]
    assert "You play the part" not in result.stdout
