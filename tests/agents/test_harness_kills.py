"""kill -9 in the middle of a program's rollout: after a resume the unmodified program goes on: make test-harness."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest
from harness_runs import ALL_HARNESSES, processes_of
from waiting import until

from ludus.agents.harness.declaration import read_declaration
from ludus.store.loading import rollout_of
from ludus.testing import needs_sandbox

pytestmark = [
    needs_sandbox(),
    pytest.mark.skipif(not os.environ.get("LUDUS_TEST_HARNESS"), reason="needs minutes: make test-harness"),
]

#: How often each program is killed. LUDUS_KILLS=20 kills as often as docs/harnesses.md says.
KILLS = int(os.environ.get("LUDUS_KILLS", "2"))

#: Programs whose requests differ each time: OpenHands tells the model the time, and Codex writes a random id and the
#: seconds into the output of a command. Gemini CLI and Qwen Code write the number of a process, which may repeat.
DIFFERS = ("codex", "openhands")

#: A model that notes each call, and kills its process in the middle of the one that KILL_AT names: rollout and call.
#: Ids of calls are random, as those of real models are. A program without tools is asked for a file's name until its
#: fourth call.
MODEL = """
import asyncio
import os
import secrets
import signal
from collections import Counter
from pathlib import Path

from ludus.agents.harness.declaration import read_declaration
from ludus.agents.harness.policy import ShellPolicy
from ludus.response import message

LOG = os.open("asked.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
declaration = read_declaration("NAME")
policy = ShellPolicy(declaration, [f"echo hi >> hello.txt # {number}" for number in range(4)])


async def respond(request):
    rollout = request.session.partition("/")[0]
    os.write(LOG, f"{rollout} {request.turn}\\n".encode())
    await asyncio.sleep(0.5)  # answers before this one are written meanwhile
    if "KILL_AT" in os.environ:
        number, call = map(int, os.environ["KILL_AT"].split())
        counts = list(Counter(line.split()[0] for line in Path("asked.log").read_text().splitlines()).values())
        if len(counts) > number and counts[number] >= call:
            os.kill(os.getpid(), signal.SIGKILL)
    if declaration.edit is not None:
        text = declaration.edit if request.turn == 3 else "Which file?\\n\\n```\\nhi\\n```\\n"
        return policy.with_tokens(request, [message(text)])
    response = await policy.respond(request)
    for call in response.function_calls:
        call["call_id"] = "call_" + secrets.token_hex(8)
    return response
"""

RESOURCES = "from ludus.agents.harness.checking import HelloFile\n"
ENVIRONMENT = "name: hello\nresources: resources.py:HelloFile\nagent: {type: harness, name: NAME}\n"


class KilledProgram:
    """A collection whose rollouts are played by a program, one after the other."""

    def __init__(self, folder: Path, name: str, rollouts: int) -> None:
        self.folder = folder
        for file, text in {"resources.py": RESOURCES, "environment.yaml": ENVIRONMENT, "answers.py": MODEL}.items():
            (folder / file).write_text(text.replace("NAME", name))
        prompts = ({"input": f"Append the line hi to hello.txt. This is task {at}."} for at in range(rollouts))
        rows = b"".join(orjson.dumps({"responses_create_params": prompt}) + b"\n" for prompt in prompts)
        (folder / "rows.jsonl").write_bytes(rows)

    def run(self, **variables: str) -> int:
        """Run to the end, or until the model kills it. Returns the exit code."""
        words = [sys.executable, "-m", "ludus", "collect", ".", "--model", "scripted:answers:respond"]
        words += ["--input", "rows.jsonl", "--output", "out", "--concurrency", "1"]
        words += ["--resume"] if (self.folder / "out/run.json").exists() else []
        with (self.folder / "stderr.log").open("ab") as stderr:
            quiet = subprocess.DEVNULL
            environment = {**os.environ, **variables}
            return subprocess.run(words, cwd=self.folder, stdout=quiet, stderr=stderr, env=environment).returncode

    def kill_at(self, number: int, call: int) -> None:
        """Run until a call of a rollout, and kill -9."""
        code = self.run(KILL_AT=f"{number} {call}")
        assert code == -signal.SIGKILL, (self.folder / "stderr.log").read_text()

    def finish(self) -> list[dict[str, Any]]:
        """Run to the end. The recorded rollouts."""
        assert self.run() == 0, (self.folder / "stderr.log").read_text()
        assert (self.folder / "out/failures.jsonl").read_bytes() == b""
        return [orjson.loads(line) for line in (self.folder / "out/rollouts.jsonl").read_bytes().splitlines()]

    @property
    def asked(self) -> list[str]:
        """The rollouts whose calls the model was asked."""
        log = self.folder / "asked.log"
        return [line.split()[0] for line in log.read_text().splitlines()] if log.exists() else []


@pytest.mark.parametrize("name", ALL_HARNESSES)
def test_a_program_killed_in_the_middle_of_its_rollout_goes_on_there(name: str, tmp_path: Path) -> None:
    calls = 4 if read_declaration(name).edit is not None else 5
    killed = KilledProgram(tmp_path, name, KILLS)
    for number in range(KILLS):
        killed.kill_at(number, calls - number % (calls - 1))  # the last call, the one before, and so on to the second
        until(lambda: not list(processes_of(name)))
    rollouts = killed.finish()
    assert [row["reward"] for row in rollouts] == [1.0] * KILLS
    assert [len(row["model_calls"]) for row in rollouts] == [calls] * KILLS
    checkpoints = orjson.loads((tmp_path / "out/metrics.json").read_bytes())["checkpoints"]
    assert (checkpoints["resumed"], checkpoints["turns_lost"], checkpoints["started_over"]) == (1, 0, 0)
    assert max(Counter(killed.asked).values()) <= calls + 1, "a kill costs the call in flight"
    for row in rollouts:
        notes = row["response"]["metadata"]
        assert "lost_calls" not in notes
        assert name not in DIFFERS or notes["kept_calls"] == "1" or int(notes["alike_calls"]) > 0
        if name != "aider":  # it writes its files into the prompt anew each time
            assert [sequence.kind for sequence in rollout_of(row).sequences()] == ["main"]
