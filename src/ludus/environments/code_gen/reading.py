"""The tests of a row, and the thinking tags of an answer."""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic import BaseModel, ConfigDict

from ludus import Response

_TAGS = (re.compile("<think>", re.IGNORECASE), re.compile("</think>", re.IGNORECASE))


class UnitTests(BaseModel):
    """Inputs and expected outputs. With `fn_name` a function is called, otherwise a program reads standard input."""

    model_config = ConfigDict(extra="allow")

    inputs: list[str]
    outputs: list[str]
    fn_name: str | None = None

    def problem(self, language: str) -> str | None:
        """Why no program could be judged by these tests, or None."""
        if not self.inputs:
            return "there is no test"
        if len(self.inputs) != len(self.outputs):
            return f"there are {len(self.inputs)} inputs and {len(self.outputs)} outputs"
        if self.fn_name is None:
            return None
        if language != "python":
            return f"fn_name is for Python, and the language is {language}"
        if not self.fn_name.isidentifier():
            return f"fn_name {self.fn_name!r:.40} is no name of a function"
        for number, (stdin, expected) in enumerate(zip(self.inputs, self.outputs, strict=True)):
            try:
                self.arguments(stdin)
                json.loads(expected)
            except (ValueError, RecursionError):
                return f"test {number}: with fn_name, each line of an input and the output must be JSON"
        return None

    def arguments(self, stdin: str) -> list[Any]:
        """The arguments of a call: one JSON value a line. Without lines there are none."""
        return [json.loads(line) for line in stdin.split("\n") if line.strip()]


def format_violated(text: str, response: Response) -> bool:
    """Whether thinking tags stand in the text around the program, or repeatedly in the reasoning."""
    if any(tag.search(text) for tag in _TAGS):
        return True
    reasoning = "".join(
        str(part.get("text") or "")
        for item in response.output
        if item.get("type") == "reasoning"
        for part in item.get("summary") or ()
        if isinstance(part, dict)
    )
    return any(len(tag.findall(reasoning)) > 1 for tag in _TAGS)
