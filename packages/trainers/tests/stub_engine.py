"""An engine of tokens as trainers have them, and an environment of two turns: a tool call, then the answer."""

from __future__ import annotations

from typing import Any

from ludus_trainers.rows import TrainingRow
from tiny_transformers import tokenizer

import ludus
from ludus import Resources, Response, tool

CALL = '<tool_call>\n{"name": "double", "arguments": {"number": 21}}\n</tool_call><|im_end|>'
ROW = {"responses_create_params": {"input": "Double 21.", "temperature": 0.1}, "task_id": "double"}


class Doubling(Resources):
    """The answer must hold the doubled number."""

    @tool
    async def double(self, number: int) -> int:
        """Double a number."""
        return 2 * number

    async def verify(self, task: ludus.Task, response: Response) -> float:
        return 0.75 if "42" in response.output_text else 0.0


class StubEngine:
    """Calls the tool, then answers. Keeps every prompt, what it generated after it, and the logprobs."""

    def __init__(self, template: str = "tools") -> None:
        self.tokenizer = tokenizer(template)
        self.calls: list[tuple[list[int], list[int], list[float]]] = []
        self.sampling: list[Any] = []

    def generate(self, prompt: list[int], sampling: Any = None) -> tuple[list[int], list[float]]:
        text = "So 42.<|im_end|>" if "42" in self.tokenizer.decode(prompt) else CALL
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        logprobs = [-(1 + len(self.calls) + number) / 64 for number in range(len(ids))]
        self.calls.append((list(prompt), ids, logprobs))
        self.sampling.append(sampling)
        return ids, logprobs

    def check(self, ids: list[int], mask: list[int], logprobs: list[float]) -> None:
        """The sequence holds exactly what this engine read and wrote in two turns."""
        (first, call, before), (second, answer, after) = self.calls
        assert second[: len(first) + len(call)] == [*first, *call], "earlier ids were changed"
        assert ids == [*second, *answer]
        context = len(second) - len(first) - len(call)
        assert mask == [*[0] * len(first), *[1] * len(call), *[0] * context, *[1] * len(answer)]
        wanted = [*[0.0] * len(first), *before, *[0.0] * context, *after]
        assert [round(each, 5) for each in logprobs] == [round(each, 5) for each in wanted]


def whole(row: TrainingRow) -> tuple[list[int], list[int], list[float]]:
    """The ids, mask and logprobs of a row over its whole sequence."""
    return row.ids, row.over_ids(row.mask, 0), row.over_ids(row.logprobs, 0.0)
