"""A real agent program plays in the task's own sandbox. Skipped where it is not installed: ludus harness install pi."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from typing import Any

import pytest
import yaml
from harness_runs import WRITE, Failing, Spaced, needs_harness, played

import ludus
from ludus import Environment, ScriptedModel, UserError
from ludus.agents.harness.agent import HarnessAgent
from ludus.agents.harness.declaration import Declaration, declared, filled_in, read_declaration
from ludus.limits import Limits
from ludus.model import Request
from ludus.outcome import Outcome
from ludus.response import Response
from ludus.sandbox.resources import SandboxSettings
from ludus.testing import needs_sandbox


def call(command: str) -> dict[str, Any]:
    return {"text": "So:", "calls": [{"name": "bash", "arguments": {"command": command}}]}


@needs_sandbox()
@needs_harness("pi")
def test_pi_works_in_the_tasks_own_folder_and_leaves_nothing_else() -> None:
    in_order = f"case $PATH in */usr/bin*:/opt/harness/*) {WRITE};; esac"  # the task's own programs come first
    rollout = played("pi", Spaced(read_declaration("pi"), [in_order]))
    assert (rollout.reward, rollout.stop_reason) == (1.0, "completed")
    assert rollout.verdict is not None
    assert rollout.verdict.values["files"] == [".:", "hello.txt", "/tmp:"]
    assert rollout.response is not None
    assert rollout.response.data["metadata"]["harness"] == read_declaration("pi").label
    assert len(rollout.calls) == 2
    assert [sequence.kind for sequence in rollout.sequences()] == ["main"], "the arguments are the model's own"


@needs_sandbox()
@needs_harness("pi")
def test_a_policy_that_never_stops_gets_its_verdict() -> None:
    rollout = played("pi", ScriptedModel([call("echo hi > hello.txt")]), max_steps=3)
    assert (rollout.reward, rollout.stop_reason, len(rollout.calls)) == (1.0, "max_steps", 3)


@needs_sandbox()
@needs_harness("pi")
def test_a_program_is_ended_when_its_model_fails_for_good() -> None:
    model = Failing(read_declaration("pi"), [WRITE], first=2, last=float("inf"))
    rollout = played("pi", model)
    assert rollout.reward is None
    assert rollout.error is not None
    assert (rollout.error.stage, rollout.error.kind, model.calls) == ("model", "http_500", 4)


#: What a hostile policy tries: a reward, keys, files of the host, another port of the host, the disk, processes.
ATTACKS = [
    "echo 1 > reward.txt; mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt",
    "env; cat /proc/1/environ /proc/*/environ /etc/shadow; ls -A /root /work /home; find / -name '*.jsonl' | head",
    "python3 -c 'import socket; print(socket.create_connection((\"127.0.0.1\", PORT), 3).recv(99))'",
    "for place in . /tmp; do head -c 2000000000 /dev/zero > $place/large; rm $place/large; done",
    "for n in $(seq 300); do sleep 1 & done; nohup sleep 600 &",
    "seq 100000",  # Pi keeps a long output in a file
]


@needs_sandbox()
@needs_harness("pi")
def test_a_hostile_policy_reaches_no_key_no_other_port_and_nobodys_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-ours-and-nobody-elses")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        commands = [command.replace("PORT", str(server.getsockname()[1])) for command in ATTACKS]
        rollout = played("pi", ScriptedModel([*map(call, commands), "Done."]))
        with pytest.raises(TimeoutError):
            server.accept()
    assert (rollout.reward, rollout.stop_reason) == (0.0, "completed"), "what it wrote for the verifier is no reward"
    said = rollout.encode().decode()
    assert "sk-ours" not in said
    assert "root:$" not in said
    assert "root:*" not in said
    assert rollout.verdict is not None
    assert "sleep" not in rollout.verdict.values["processes"]
    assert rollout.verdict.values["files"] == [".:", "reward.txt", "/tmp:"]


@needs_sandbox()
@needs_harness("pi")
@pytest.mark.parametrize(
    ("command", "reward", "kill"),
    [
        (WRITE, 1.0, "kill -9 -1"),
        (WRITE, 1.0, "kill $PPID"),
        (WRITE, 1.0, "pkill -INT node"),
        (WRITE, 1.0, "(sleep 1; kill -9 -1) &"),
        ("echo no > hello.txt", 0.0, "kill -9 -1"),
    ],
)
def test_a_policy_that_kills_its_own_program_is_judged_by_what_it_left(command: str, reward: float, kill: str) -> None:
    rollout = played("pi", ScriptedModel([call(f"{command}; {kill}"), call("sleep 5"), "Done."]))
    assert (rollout.outcome, rollout.reward) == (Outcome.COMPLETED, reward)


@needs_sandbox()
@needs_harness("qwen-code")
def test_an_answer_that_a_program_cannot_use_gets_its_verdict() -> None:
    rollout = played("qwen-code", ScriptedModel([""]))  # the program asks twice more, and ends with exit code 1
    assert (rollout.outcome, rollout.reward, rollout.stop_reason) == (Outcome.COMPLETED, 0.0, "program_ended")
    assert rollout.response is not None
    assert "empty response" in rollout.response.data["metadata"]["program_error"]


@pytest.mark.slow  # the program needs time for its first call on a busy machine, and then waits for the limit
@needs_sandbox()
@needs_harness("pi")
def test_a_policy_whose_command_never_ends_is_judged_by_what_it_left() -> None:
    rollout = played("pi", ScriptedModel([call(f"{WRITE}; sleep 1000"), "Done."]), limits=Limits(rollout=30))
    assert (rollout.outcome, rollout.reward, rollout.stop_reason) == (Outcome.COMPLETED, 1.0, "timeout")


@pytest.mark.slow
@needs_sandbox()
@needs_harness("pi")
def test_a_model_that_takes_the_programs_time_fails_the_rollout() -> None:
    class Slow(ScriptedModel):
        async def respond(self, request: Request) -> Response:
            await asyncio.sleep(20 if request.turn else 0)
            return await super().respond(request)

    rollout = played("pi", Slow([call(WRITE), call(WRITE), "Done."]), limits=Limits(rollout=30))
    assert (rollout.outcome, rollout.reward) == (Outcome.FAILED, None)
    assert rollout.error is not None
    assert (rollout.error.stage, rollout.error.kind) == ("agent", "timeout")


@needs_sandbox()
def test_a_harness_that_is_not_installed_says_what_to_type(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("LUDUS_CACHE", str(tmp_path))
    with pytest.raises(UserError, match="is not installed"):
        played("pi", ScriptedModel(["Done."]))


@needs_sandbox()
@needs_harness("pi")
def test_an_unknown_sandbox_for_an_environment_without_one_is_refused_before_the_first_rollout() -> None:
    agent = HarnessAgent(HarnessAgent.Config(name="pi", sandbox=SandboxSettings(provider="bublewrap")))
    environment = replace(Environment.load("mcqa"), agent=agent)
    with pytest.raises(UserError, match="unknown sandbox provider bublewrap. Did you mean bubblewrap?"):
        ludus.collect(environment, model=ScriptedModel(["A"]), limit=1)


def test_an_unknown_harness_is_asked_about() -> None:
    with pytest.raises(UserError, match="unknown harness py"):
        read_declaration("py")


@pytest.mark.parametrize("name", declared())
def test_every_declaration_is_valid_and_has_its_own_name(name: str) -> None:
    assert read_declaration(name).name == name


def test_only_known_names_in_braces_are_filled_in() -> None:
    text = '{"a": {"url": "{url}/v1"}, "b": "{other}"}'
    assert filled_in(text, {"url": "U"}) == '{"a": {"url": "U/v1"}, "b": "{other}"}'


def test_a_mistake_in_a_declaration_names_the_file_and_the_field(tmp_path: Any) -> None:
    path = tmp_path / "mine.yaml"
    fields = Declaration.model_validate(yaml.safe_load(declared()["pi"].read_text())).model_dump(exclude_none=True)
    path.write_text(yaml.safe_dump({**fields, "prompt": "argv"}))
    with pytest.raises(UserError, match=r"mine\.yaml\.prompt"):
        read_declaration(str(path))
