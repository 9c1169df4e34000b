"""A judge for conversations: step by step and then the whole, or all three parts in one question.

The judge must reply with JSON only. The policy earns reward by persuading the judge, so every step is shown as one line
of JSON between marks that the policy could not know while it wrote the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import orjson

from ludus.dialects.usage import add_usage
from ludus.environments.conversational_tool_use_simulation import prompts
from ludus.environments.conversational_tool_use_simulation.checking import unfenced
from ludus.environments.conversational_tool_use_simulation.rows import ConversationTask
from ludus.environments.conversational_tool_use_simulation.steps import Source, Step
from ludus.graders.judge import Judge
from ludus.model import Request
from ludus.runtime.encoding import encode

Blocks = dict[str, list[str]]

#: The names of the three parts in a combined reply.
PARTS: dict[str, Source] = {"customer": "user", "tools": "environment", "representative": "agent"}


@dataclass(frozen=True)
class Finding:
    """The judge's verdict on one step, or on the whole conversation if `step` is None."""

    source: Source
    success: bool
    explanation: str
    step: int | None = None


class Unreadable(Exception):
    """None of the judge's replies held a verdict."""


class Examiner:
    """Asks the judge about one conversation. `usage` adds up the judge's tokens."""

    def __init__(self, judge: Judge, task: ConversationTask, steps: list[Step], attempts: int) -> None:
        self.usage: dict[str, Any] = {}
        self._judge, self._steps, self._attempts = judge, steps, attempts
        self._transfer_expected = task.customer_scenario.outside_policy_scope
        self._lines = [_line(step.shown()) for step in steps]
        self._material: Blocks = {
            "POLICY": [_line(task.policy)],
            "SCENARIO": [_line(task.customer_scenario.model_dump())],
            "TOOLS": [_line(tool.model_dump(exclude={"doc", "params"})) for tool in task.definitions],
        }

    async def by_step(self, stop_early: bool) -> list[Finding]:
        """Judge the simulated steps, then the policy's, then the whole. `stop_early` stops at the first failed step."""
        findings: list[Finding] = []
        new = [(step.source == "agent", number) for number, step in enumerate(self._steps) if not step.in_prompt]
        for _, number in sorted(new):
            findings.append(await self._step(number))
            if stop_early and not findings[-1].success:
                return findings
        reply = await self._ask(prompts.whole(self._transfer_expected), {"STEPS": self._lines}, [""])
        return [*findings, Finding("agent", *reply[""])]

    async def in_one_question(self) -> list[Finding]:
        """Judge customer, tools and representative with one question."""
        reply = await self._ask(prompts.all_parts(self._transfer_expected), {"STEPS": self._lines}, list(PARTS))
        return [Finding(source, *reply[part]) for part, source in PARTS.items()]

    async def _step(self, number: int) -> Finding:
        source = self._steps[number].source
        shown = {"STEPS BEFORE": self._lines[:number], "THE STEP": [self._lines[number]]}
        reply = await self._ask(prompts.CRITERIA[source], shown, [""])
        return Finding(source, *reply[""], number)

    async def _ask(self, question: str, steps: Blocks, parts: list[str]) -> dict[str, tuple[bool, str]]:
        form = prompts.VERDICT if parts == [""] else prompts.ALL_VERDICTS
        text = f"{_marked({**self._material, **steps})}\n\n{question}\n\nReply with one JSON object alone: {form}"
        items = [{"role": "system", "content": prompts.JUDGE}, {"role": "user", "content": text}]
        for attempt in range(self._attempts):
            request = Request(items, turn=attempt, seed=attempt, params=self._judge.params)
            response = await self._judge.reply(request)
            add_usage(self.usage, response.usage)
            if (reply := read_reply(response.output_text, parts)) is not None:
                return reply
        raise Unreadable


def read_reply(text: str, parts: list[str]) -> dict[str, tuple[bool, str]] | None:
    """The verdict on each part (the part "" is the whole reply); None if any part has no verdict."""
    try:
        reply = orjson.loads(unfenced(text))
    except orjson.JSONDecodeError:
        return None
    verdicts = {}
    for part in parts:
        verdict = reply.get(part) if part and isinstance(reply, dict) else reply
        if not isinstance(verdict, dict) or not isinstance(verdict.get("success"), bool):
            return None
        verdicts[part] = verdict["success"], str(verdict.get("explanation", ""))
    return verdicts


def _line(value: Any) -> str:
    return encode(value).decode()


def _marked(blocks: Blocks) -> str:
    """Blocks of lines between marks; the mark is a hash of all lines."""
    content = "\n".join(line for lines in blocks.values() for line in lines)
    mark = blake2b(content.encode("utf-8", "replace"), digest_size=6).hexdigest()
    whole = ([f"BEGIN {name} {mark}", *lines, f"END {name} {mark}"] for name, lines in blocks.items())
    return "\n".join("\n".join(lines) for lines in whole)
