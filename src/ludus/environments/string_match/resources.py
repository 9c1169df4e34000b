"""A question with a short answer, which is extracted from the text and compared with the expected answer.

Differences in spelling (case, quotes, LaTeX, thousands, abbreviated states) and of one percent are accepted.
"""

from __future__ import annotations

from typing import Literal

import ludus
from ludus import Failure, Resources, Response, Verdict
from ludus.environments.string_match.comparing import reward_of
from ludus.environments.string_match.extraction import MODES
from ludus.response import is_message, texts_of
from ludus.runtime.threads import in_thread

ExtractionMode = Literal["boxed", "final_answer", "last_line", "full_response"]


class StringMatch(Resources):
    """No tools and no state: the verifier reads only the final text."""

    judged_by_response = True  # `open` only checks the row

    class Task(ludus.Task):
        expected_answer: str
        extraction_mode: ExtractionMode = "final_answer"
        case_sensitive: bool = False

    async def open(self, task: Task) -> None:
        if not task.expected_answer.strip() and not self.config.compat:
            raise Failure("bad_row", "expected_answer is empty, so no answer could be right")

    async def verify(self, task: Task, response: Response) -> Verdict:
        await self.open(task)  # a stored rollout is judged again without a session
        return await in_thread(self._verdict, task, response)  # type: ignore[no-any-return]

    def _verdict(self, task: Task, response: Response) -> Verdict:
        compat = self.config.compat
        expected = task.expected_answer
        answer = MODES[task.extraction_mode](_text(response), compat)
        reward = reward_of(answer or "", expected, case_sensitive=task.case_sensitive, compat=compat)
        return Verdict(reward, expected_answer=expected, extracted_answer=answer)


def _text(response: Response) -> str:
    """The parts of all messages, one on each line."""
    contents = [item.get("content") for item in response.output if is_message(item)]
    parts = [part for content in contents for part in ([content] if isinstance(content, str) else content or ())]
    texts = [part if isinstance(part, str) else texts_of({"content": [part]}) for part in parts]
    return "\n".join(text for text in texts if text)
