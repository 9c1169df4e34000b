"""A model with a short context: programs shorten their conversation when a prompt is refused: make test-harness."""

from __future__ import annotations

import os

import pytest
from harness_runs import needs_harness, played, processes_of
from waiting import until

from ludus.agents.harness.declaration import Declaration, read_declaration
from ludus.agents.harness.policy import ShellPolicy
from ludus.model import Request
from ludus.response import Item, Response, message, prompt_too_long, texts_of
from ludus.testing import needs_sandbox

pytestmark = [
    needs_sandbox(),
    pytest.mark.skipif(not os.environ.get("LUDUS_TEST_HARNESS"), reason="needs minutes: make test-harness"),
]

#: How many characters the model can read beyond its first prompt, and how many each command prints. Pi keeps the last
#: 80,000 characters as they are.
ROOM, PRINTED = 130_000, 25_000
LONG = [f"echo hi >> hello.txt; yes {number}-abcdefghijkl | head -c {PRINTED}" for number in range(14)]

SUMMARY = "The commands so far wrote the line hi into hello.txt, one after another. One more command is needed."

#: The programs that shorten their conversation, and whether another conversation writes the summary.
COMPACTS = {"claude-code": False, "opencode": True, "openhands": True, "pi": True}
#: Those that end.
ENDS = ("codex", "gemini-cli")


class ShortSighted(ShellPolicy):
    """Refuses prompts beyond its context, writes a summary if asked for one, then runs one more command."""

    def __init__(self, declaration: Declaration) -> None:
        super().__init__(declaration, LONG)
        self._declaration = declaration
        self._context: int | None = None
        self.refused = self.summaries = self.after = 0

    async def respond(self, request: Request) -> Response:
        read = self.with_tokens(request, []).tokens
        assert read is not None
        length = len(read.prompt_ids)
        self._context = self._context or length + ROOM
        if length > self._context:
            self.refused += 1
            why = f"{length} tokens > {self._context} maximum"
            return Response.of(status="incomplete", incomplete_details=prompt_too_long(why))
        return await super().respond(request)

    def turn(self, request: Request, done: int) -> list[Item]:
        if not self.refused:
            return super().turn(request, done)
        asked = [texts_of(item) for item in request.input if item.get("role") == "user"]
        if not self.summaries and "summar" in asked[-1].lower():
            self.summaries += 1
            return [message(SUMMARY)]
        self.after += 1
        return super().turn(request, 0 if self.after == 1 else len(LONG))


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs_harness(name)) for name in COMPACTS])
def test_a_program_whose_prompt_is_too_long_compacts_and_goes_on_in_the_main_thread(name: str) -> None:
    policy = ShortSighted(read_declaration(name))
    rollout = played(name, policy)
    assert (rollout.error, rollout.stop_reason, rollout.reward) == (None, "completed", 1.0)
    assert (policy.refused, policy.summaries, policy.after) == (1, 1, 2)
    assert rollout.response is not None
    assert rollout.response.output[-1]["content"][0]["text"] == "Done."
    sequences = list(rollout.sequences())
    kinds = [sequence.kind for sequence in sequences if sequence.thread == "main"]
    assert kinds == (["main", "compacted"] if COMPACTS[name] else ["main", "compacted", "compacted"])
    threads = [(thread.kind, thread.parent) for thread in rollout.threads]
    assert threads == ([("compacted", "main")] if COMPACTS[name] else [])
    trained = "".join(chr(one) for part in sequences for one, is_own in zip(part.ids, part.mask, strict=True) if is_own)
    assert SUMMARY in trained
    assert "Done." in trained
    until(lambda: not list(processes_of(name)))


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs_harness(name)) for name in ENDS])
def test_a_program_that_ends_instead_gets_its_verdict(name: str) -> None:
    policy = ShortSighted(read_declaration(name))
    rollout = played(name, policy)
    assert (rollout.error, rollout.stop_reason, rollout.reward) == (None, "max_output_tokens", 1.0)
    assert policy.refused
    assert [sequence.kind for sequence in rollout.sequences()] == ["main"]
