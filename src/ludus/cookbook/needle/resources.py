"""One sentence in a long text answers the question. Other sentences say the same about other people and other days.

The verifier is three lines. The work of this recipe is in `generate.py`, which makes texts of any length.
"""

from __future__ import annotations

import ludus
from ludus import Resources, Response, Verdict
from ludus.graders.answers import marked_answers


class Needle(Resources):
    """No tools and no state: the verifier reads only the final text."""

    class Task(ludus.Task):
        expected_answer: str
        words: int  # the length of the text
        depth: float  # where the sentence stands: 0 at the beginning, 1 at the end

    async def verify(self, task: Task, response: Response) -> Verdict:
        answer = next(marked_answers(response.output_text), "")  # the last line "Answer: ..."
        right = answer.strip(" .*`") == task.expected_answer
        return Verdict(float(right), words=task.words, depth=task.depth)
