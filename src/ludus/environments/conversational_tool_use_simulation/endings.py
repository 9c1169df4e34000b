"""How a stored conversation ended. NeMo Gym's records keep the customer's closing turn in `result.trajectory`, not in
the response."""

from __future__ import annotations

from typing import Any

from ludus.agents.conversation import ENDS, Ending
from ludus.agents.simulated_user import UserMessage
from ludus.environments.conversational_tool_use_simulation.faults import BAD_CALL, BAD_RESULT
from ludus.response import Response, texts_of
from ludus.task import Task

#: The stop reason for each reason that the reference stores for an unfinished conversation.
_REASONS = {BAD_CALL: BAD_CALL, BAD_RESULT: BAD_RESULT, "excessive_length": "max_steps"}

#: Where a stored turn may keep its text.
_TEXTS = ("content", "text", "message")


def recorded_ending(task: Task, response: Response) -> Ending | None:
    """The ending of a conversation; None if the record does not show it."""
    ending = Ending.of(response)
    if ending is not None:
        return ending
    row = task.model_extra or {}
    result = _object(row.get("result"))
    stored = result.get("trajectory")
    trajectory = _object(stored)
    turns = stored if isinstance(stored, list) else trajectory.get("messages")
    closing = UserMessage.of(_last_of_user(turns) or _last_item(response))
    if closing.marker is not None:
        return Ending(reason=ENDS[closing.marker], closing=closing.text)
    places = (trajectory, result, row)
    reasons, labels = (_first_list(places, name) for name in ("invalid_reasons", "failure_labels"))
    if "message_generation_error" in reasons:
        return Ending(reason="user_failure" if "user_failure" in labels else "no_answer")
    return next((Ending(reason=_REASONS[reason]) for reason in reasons if reason in _REASONS), None)


def _last_of_user(turns: Any) -> str:
    """The customer's last message in a stored trajectory."""
    for turn in reversed(turns if isinstance(turns, list) else []):
        if isinstance(turn, dict) and (turn.get("source"), turn.get("type")) == ("user", "text"):
            return next((turn[key] for key in _TEXTS if isinstance(turn.get(key), str)), "")
    return ""


def _last_item(response: Response) -> str:
    """The text of the last item, if it is the customer's."""
    last = response.output[-1] if response.output else {}
    return texts_of(last) if last.get("role") == "user" else ""


def _first_list(places: tuple[dict[str, Any], ...], name: str) -> list[str]:
    lists = (place[name] for place in places if isinstance(place.get(name), list))
    return [text for text in next(lists, []) if isinstance(text, str)]


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
