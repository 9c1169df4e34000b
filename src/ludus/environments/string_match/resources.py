"""A question with a short answer, which is extracted from the text and compared with the expected answer.

Differences in spelling (case, quotes, LaTeX, thousands, abbreviated states) and of one percent are accepted.
"""

from __future__ import annotations

from typing import Literal

import ludus
from ludus import Resources, Response, Verdict
from ludus.environments.string_match.comparing import reward_of
from ludus.environments.string_match.extraction import MODES
from ludus.response import is_message, texts_of
from ludus.runtime.threads import in_thread

ExtractionMode = Literal["boxed", "final_answer", "last_line", "full_response"]


class StringMatch(Resources):
    """No tools and no state: the verifier reads only the final text."""

    class Task(ludus.Task):
        expected_answer: str
        extraction_mode: ExtractionMode = "final_answer"
        case_sensitive: bool = False

    async def verify(self, task: Task, response: Response) -> Verdict:
        return await in_thread(self._verdict, task, response)  # type: ignore[no-any-return]

    def _verdict(self, task: Task, response: Response) -> Verdict:
        compat = self.config.compat
        expected = task.expected_answer
        answer = MODES[task.extraction_mode](_text(response), compat)
        reward = reward_of(answer or "", expected, case_sensitive=task.case_sensitive, compat=compat)
        mask = None if expected.strip() or compat else "there is no expected answer"
        return Verdict(reward, mask=mask, expected_answer=expected, extracted_answer=answer)


def _text(response: Response) -> str:
    """The parts of all messages, one on each line."""
    contents = [item.get("content") for item in response.output if is_message(item)]
    parts = [part for content in contents for part in ([content] if isinstance(content, str) else content or ())]
    texts = [part if isinstance(part, str) else texts_of({"content": [part]}) for part in parts]
    return "\n".join(text for text in texts if text)
