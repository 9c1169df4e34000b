"""The journal of a program's model calls: what was answered is saved, and a restarted program gets it again."""

from __future__ import annotations

from typing import Any

from ludus.agents.program_conversation import ProgramConversation, Turn
from ludus.agents.volatile import VolatileText
from ludus.recorder import EpisodeRecorder
from ludus.response import Response


class ProgramJournal:
    """Saves the calls of one rollout's program, and answers from those of an interrupted run.

    A request may differ from the saved one in volatile text. Then the saved items take the place of the program's, so
    that the model goes on with what it has read.
    """

    def __init__(self, recorder: EpisodeRecorder, volatile: VolatileText) -> None:
        self._recorder = recorder
        self._volatile = volatile

    def known_answer(self, conversation: ProgramConversation, turn: Turn) -> Response | None:
        """The answer that the model gave before the rollout was interrupted, if the program asks the same again."""
        saved = self._recorder.kept_calls
        if saved is None or not saved.has_answers:
            return None
        call = saved.known(conversation.key(turn), conversation.key(turn, self._volatile.content))
        if call is None:
            return None
        if call.asked is not None:
            turn.items[turn.known :] = call.asked
        response = Response(call.answer)
        conversation.log.restore([call.record])
        conversation.calls.append(call.record)
        self._recorder.adopt(response, [call.record], response.usage)
        return response

    async def saved(self) -> None:
        """Wait until the calls that were written before are safe: a killed collection loses this call and no other."""
        saved = self._recorder.kept_calls
        if saved is not None and (unsaved := saved.settle()) is not None:
            await unsaved

    def record(self, conversation: ProgramConversation, turn: Turn, response: Response, tools: Any) -> None:
        """Record a call that the model has answered, and save it."""
        record = self._recorder.record_call(response, tools, conversation.tools, conversation.log)
        conversation.calls.append(record)
        saved = self._recorder.kept_calls
        if saved is not None:
            key, alike = conversation.key(turn), conversation.key(turn, self._volatile.content)
            asked = None if alike == key else turn.items[turn.known :]
            saved.keep(key, response, record, alike, asked)

    def counts(self) -> dict[str, str]:
        """For the record of a resumed rollout: the saved answers that it got, how, and those that it did not get."""
        saved = self._recorder.kept_calls
        counts = saved.counts() if saved is not None else {}
        return {name: str(count) for name, count in counts.items() if count}
