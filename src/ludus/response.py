"""Trajectories: items of the OpenAI Responses API, as plain JSON objects.

An item is the dictionary that the provider sent, unknown fields included:

| type | fields |
| --- | --- |
| `message`, or none | `role`, and `content`: a text, or parts such as `input_text` and `output_text` |
| `function_call` | `call_id`, `name`, and `arguments`: the text that the model wrote, which may not be JSON |
| `function_call_output` | `call_id`, and `output`: what the model reads, a text or parts |
| `reasoning` | `summary` and `content`, as far as the provider shows it |

`Response` is a thin view with properties for
agents and verifiers. `Items` is a list that encodes each item once, for all requests and records with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson
from orjson import Fragment

from ludus.dialects.conversion import Item as Item
from ludus.errors import Failure
from ludus.runtime.encoding import encode
from ludus.thread import Thread
from ludus.tokens import Tokens

#: The types of a message's parts that hold text.
_TEXTS = ("output_text", "input_text", "text")


def message(text: str, *, id: str = "msg_0") -> Item:
    """An assistant message as a provider would send it."""
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"id": id, "type": "message", "role": "assistant", "status": "completed", "content": [part]}


def function_call(name: str, arguments: str | dict[str, Any], *, call_id: str) -> Item:
    """A function call as a provider would send it; a dictionary of arguments is encoded."""
    text = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
    return {
        "id": f"fc_{call_id}",
        "type": "function_call",
        "call_id": call_id,
        "name": name,
        "arguments": text,
        "status": "completed",
    }


class PicturedText(str):
    """What a tool returns to show pictures beside its text. `images` are data URLs.

    return PicturedText("The page now:", f"data:image/png;base64,{encoded}")
    """

    images: tuple[str, ...]

    def __new__(cls, text: str, *images: str) -> PicturedText:
        """A text and its pictures."""
        pictured = super().__new__(cls, text)
        pictured.images = images
        return pictured


def function_call_output(call_id: str, output: str) -> Item:
    """The output of a function call, as an item. A `PicturedText` becomes an `input_text` and `input_image` parts."""
    content: str | list[dict[str, str]] = output
    if isinstance(output, PicturedText):
        images = [{"type": "input_image", "image_url": url, "detail": "auto"} for url in output.images]
        content = [{"type": "input_text", "text": str(output)}, *images]
    return {"type": "function_call_output", "call_id": call_id, "output": content}


def reasoning(text: str, *, id: str = "rs_0") -> Item:
    """A reasoning item with its text as a summary."""
    return {"id": id, "type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}


class Items(list[Item]):
    """A list that encodes each item once. Append to it; do not change an item already in it.

    `views` holds what the beginning of the list became in other dialects, for the models that converted it.
    """

    __slots__ = ("_encoded", "views")

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self += items
        self._encoded: list[Fragment] = []
        self.views: dict[Any, Any] = {}

    def encoded(self) -> list[Fragment]:
        """The items as JSON fragments, which orjson copies unchanged."""
        done = self._encoded
        if len(done) < len(self):
            done += [Fragment(b"".join((encode(item), b""))) for item in self[len(done) :]]  # see `compact`
        return done

    def extended(self, items: Iterable[Item]) -> Items:
        """A list with these items and further ones, and all that exists already of these."""
        longer = Items(self)
        longer += items
        longer._encoded, longer.views = self._encoded[:], dict(self.views)
        return longer

    def since(self, start: int) -> Items:
        """The items from `start` on, with the fragments that exist already."""
        rest = Items(self[start:])
        rest._encoded = self._encoded[start:]
        return rest


def encoded_items(output: list[Item]) -> Sequence[Any]:
    """Items to encode. Those that are encoded already are not encoded again."""
    return output.encoded() if isinstance(output, Items) else output


#: Why a provider may cut off an answer. With any other reason there is no answer to judge.
CUT_OFF = ("max_output_tokens", "content_filter")

#: The statuses of an answer; any other status means that the provider has no answer, or none yet.
ANSWERED = ("completed", "incomplete")


class Response:
    """One answer of a model, or the whole trajectory of a rollout: a view of a Responses API object.

    response = Response.of(function_call("get_weather", {"city": "Oslo"}, call_id="call_1"))
    response.function_calls[0]["name"]   # 'get_weather'
    """

    __slots__ = ("data", "output", "threads", "tokens", "waited")

    def __init__(self, data: dict[str, Any], tokens: Tokens | None = None) -> None:
        self.data = data
        self.output: list[Item] = data.get("output") or []  #: everything that happened, in order
        self.tokens = tokens
        self.threads: list[Thread] = []  #: other conversations of the rollout, in a trajectory
        self.waited = 0.0  # seconds that the call waited for a connection

    def __repr__(self) -> str:
        kinds = ", ".join(str(item.get("type", "message")) for item in self.output)
        return f"Response({self.status}: {kinds})"

    @classmethod
    def of(cls, *items: Item, model: str = "", tokens: Tokens | None = None, **fields: Any) -> Response:
        """A completed response that holds `items`; `fields` overrides or adds top-level keys."""
        data = {
            "id": "resp_0",
            "object": "response",
            "created_at": 0,
            "model": model,
            "status": "completed",
            "output": list(items),
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            **fields,
        }
        return cls(data, tokens)

    @classmethod
    def checked(cls, data: Any, tokens: Tokens | None = None) -> Response:
        """A response from outside this process. Raises a `bad_response` failure if `data` is not a response."""
        output = data.get("output") if isinstance(data, dict) else None
        if not isinstance(output, list):
            raise Failure("bad_response", f"not a response: {str(data)[:200]}")
        for item in output:
            if not isinstance(item, dict):
                raise Failure("bad_response", f"an output item is not an object: {str(item)[:200]}")
            kind = item.get("type")
            if kind == "function_call":
                if not _is_call(item):
                    raise Failure(
                        "bad_response", f"a function call lacks a name, call_id or arguments: {str(item)[:200]}"
                    )
            elif kind == "message":
                _check_content(item)
            elif kind is None:
                item.pop("type", None)  # null means the same as a missing type
                _check_content(item)
        return cls(data, tokens)

    @property
    def output_text(self) -> str:
        """The text of all assistant messages, joined without a separator (as the OpenAI SDK does)."""
        return "".join([texts_of(item) for item in self.output if is_message(item)])

    @property
    def has_message(self) -> bool:
        """Whether there is an assistant message, even an empty one."""
        return any(map(is_message, self.output))

    @property
    def function_calls(self) -> list[Item]:
        """The function calls, in order."""
        return [item for item in self.output if item.get("type") == "function_call"]

    @property
    def open_calls(self) -> list[Item]:
        """The function calls without an output in this response. The server ran the others."""
        calls = [item for item in self.output if item.get("type") == "function_call"]
        if len(calls) == len(self.output):  # nothing but calls, or nothing: no output either
            return calls
        done = {str(item.get("call_id")) for item in self.output if item.get("type") == "function_call_output"}
        return [call for call in calls if str(call.get("call_id")) not in done] if done else calls

    @property
    def reasoning(self) -> str:
        """The readable part of the reasoning."""
        parts = (
            part.get("text", "")
            for item in self.output
            if item.get("type") == "reasoning"
            for part in [*(item.get("summary") or []), *(item.get("content") or [])]
        )
        return "\n".join(parts)

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools that the model was offered; empty if the response does not list them."""
        tools = self.data.get("tools")
        return tools if isinstance(tools, list) else []

    @property
    def usage(self) -> dict[str, Any]:
        """Token counts as the provider reported them; empty when it did not."""
        usage = self.data.get("usage")
        return usage if isinstance(usage, dict) else {}

    @property
    def status(self) -> str:
        """`completed`, `incomplete`, or whatever the provider said."""
        return str(self.data.get("status") or "completed")

    @property
    def incomplete_reason(self) -> str | None:
        """Why the answer was cut short (`max_output_tokens`, `content_filter`, ...), or None."""
        data = self.data
        details = data.get("incomplete_details")
        if details is not None and isinstance(details, dict):
            return str(details.get("reason") or "incomplete")
        return "incomplete" if data.get("status") == "incomplete" else None

    @property
    def prompt_too_long(self) -> str | None:
        """Why the model could not answer at all: the prompt exceeds its context. None if it could."""
        details = self.data.get("incomplete_details")
        why = details.get("prompt_too_long") if isinstance(details, dict) else None
        return why[:300] if isinstance(why, str) else None

    @property
    def aborted(self) -> str | None:
        """Why this answer cannot be judged; None if it can. It failed, is not finished, or was cut off (`abort`).

        A token limit and a content filter do not count: such an answer is judged.
        """
        data = self.data
        if data.get("status") == "completed" and data.get("incomplete_details") is None:  # the usual answer
            return None
        if self.status not in ANSWERED:
            return self.status
        reason = self.incomplete_reason
        return None if reason in (None, *CUT_OFF) else reason

    def unusable(self, calls: list[dict[str, Any]]) -> str | None:
        """Why the trajectory should not be trained on, whatever its reward; None if it can be.

        `calls` are the records of its model calls. A content filter and an answer without content are the provider's
        fault, not the model's.
        """
        reason = self.incomplete_reason
        if reason == "content_filter":
            return "a content filter cut off the answer"
        if reason is not None or not calls:
            return None
        items = calls[-1].get("items", 1)
        if not items and self.output[-1:] and self.output[-1].get("role") == "assistant":
            items = 1  # a program wrote the trajectory in its own way, so no call has a place in it
        for item in self.output[-items:] if items else ():
            if not is_message(item) or item.get("content") not in (None, []):
                return None
        return "the last answer has no content"


def prompt_too_long(message: str) -> dict[str, str]:
    """The `incomplete_details` of an empty answer to a prompt beyond the model's context, with the server's message."""
    return {"reason": "max_output_tokens", "prompt_too_long": message}


def _is_call(item: Item) -> bool:
    get = item.get
    return isinstance(get("name"), str) and isinstance(get("call_id"), str) and isinstance(get("arguments"), str)


def _check_content(item: Item) -> None:
    """Refuse a message whose content is not a text, a list of parts or null."""
    content = item.get("content")
    if isinstance(content, list):
        for part in content:
            if not isinstance(part, dict):
                raise _bad_content(item)
    elif content is not None and not isinstance(content, str):
        raise _bad_content(item)


def _bad_content(item: Item) -> Failure:
    return Failure("bad_response", f"the content of a message is neither a text nor parts: {str(item)[:200]}")


def is_message(item: Item) -> bool:
    """Whether an item is a message of the assistant. Its type may be missing or null."""
    return item.get("type") in ("message", None) and item.get("role", "assistant") == "assistant"


def by_model(item: Item) -> bool:
    """Whether the model wrote an item."""
    return item.get("type") in ("function_call", "reasoning") or is_message(item)


def is_reply(item: Item) -> bool:
    """Whether the model was shown an item, and did not write it."""
    kind = str(item.get("type") or "message")
    return kind.endswith("_output") or (kind == "message" and not is_message(item))


def texts_of(item: Item) -> str:
    """The text of a message item, whether its content is a string or parts."""
    content = item.get("content")
    if isinstance(content, str):
        return content
    return "".join([part["text"] for part in content or () if _is_text(part)])


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in _TEXTS and isinstance(part.get("text"), str)
