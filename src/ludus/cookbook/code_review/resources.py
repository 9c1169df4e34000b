"""The model reviews a change and comments on the lines that have a mistake.

A comment on the right line with the right kind of mistake earns a share of the reward, and any other comment costs as
much. So commenting on every line earns nothing, and neither does approving everything: every change has a mistake.
"""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import BaseModel

import ludus
from ludus import Resources, Response, Verdict, tool

Kind = Literal["off_by_one", "injection", "resource_leak", "swallowed_error", "mutable_default", "wrong_condition"]


class Mistake(BaseModel):
    """One planted mistake: the number of its line in the prompt, and its kind."""

    line: int
    kind: Kind


class CodeReview(Resources):
    """A review that collects the comments of one rollout."""

    class Task(ludus.Task):
        mistakes: list[Mistake]

    async def open(self, task: Task) -> None:
        self.comments: set[tuple[int, Kind]] = set()

    @tool
    async def comment(self, line: int, kind: Kind, text: str) -> str:
        """Point out one mistake.

        Args:
            line: The number in front of the line.
            kind: What is wrong with it.
            text: A sentence for the author of the change.
        """
        self.comments.add((line, kind))
        return f"comment on line {line} added"

    async def verify(self, task: Task, response: Response) -> Verdict:
        planted = {(mistake.line, mistake.kind) for mistake in task.mistakes}
        hits, false_alarms = len(self.comments & planted), len(self.comments - planted)
        reward = max(0, hits - false_alarms) / len(planted)
        by_kind = {
            f"found_{kind}": sum(reported == kind for _, reported in self.comments & planted) for kind in get_args(Kind)
        }
        return Verdict(reward, found=hits, missed=len(planted) - hits, false_alarms=false_alarms, **by_kind)
