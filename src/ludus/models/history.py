"""A conversation as one row of token ids: each turn sends the ids so far, followed by the ids of what was added.

What a model wrote is never rendered again: a parser and a template may spell a call differently, and then the model
would read other ids than those that it sampled. Only what was added since is rendered, by the model's own template, as
the difference between two renderings: twice the same short conversation with what was added at its end, in which the
model said something else each time. What both renderings share after that is the end of the model's turn, what was
added, and the opening of the next turn.

This file does no rendering itself: `Continuation.ids` is a generator that yields requests and is sent their ids, so
models that render in this process and models that ask a server share it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, cast

from ludus.errors import Failure
from ludus.model import Request
from ludus.response import Item, Response, by_model, function_call, is_message, message, reasoning

#: What happens where a template drops earlier reasoning: the ids stay as they are, or a new sequence begins.
EarlierReasoning = Literal["keep", "new_sequence"]

#: Renderings asked for, and the ids of each.
Renderings = Generator[Request, list[int], list[int]]

#: The parameters of a request that change how a whole conversation is rendered.
_FRAME = ("tools", "instructions", "chat_template_kwargs")

_SHORT_TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
_ASKED: Item = {"role": "user", "content": "?"}
_NEAR_END = {"text": 4, "calls": 32}  # how far after what the model said its turn ends at the latest
_REMEMBERED = 256


class NewSequence(Exception):
    """The ids so far cannot be continued. Its text says why."""


class HeldConversation(NamedTuple):
    """What the ids of a call hold: the items of its request and its answer, and the frame around them.

    The items before `since` are as the template wrote them, not as they were sampled.
    """

    items: list[Item]
    frame: list[Any]
    since: int


def take_prefill(request: Request, template: dict[str, Any]) -> bool:
    """Whether the answer goes on with the assistant's message at the end of the input (a prefill).

    Takes the setting out of the arguments of the template: servers and tokenizers have an argument of their own for it.
    """
    return bool(template.pop("continue_final_message", False)) and any(map(is_message, request.input[-1:]))


def keep_history(request: Request, response: Response) -> Response:
    """Note on the tokens of an answer which conversation they hold, for the next request."""
    if (tokens := response.tokens) is not None:
        before = request.tokens.conversation if request.tokens is not None else None
        kept = before.since if isinstance(before, HeldConversation) else 0
        since = kept if tokens.broke is None else len(request.input)
        tokens.conversation = HeldConversation([*request.input, *response.output], _frame(request), since)
    return response


def added_items(request: Request) -> list[Item]:
    """The items of a request that its tokens do not hold. Raises `NewSequence` if the tokens hold something else."""
    if request.tokens is None:
        raise NewSequence("it is the first call")
    before = request.tokens.conversation
    if isinstance(before, HeldConversation):
        count = len(before.items)
        if request.input[:count] != before.items:
            raise NewSequence("an earlier item of the conversation was changed")
        if _frame(request) != before.frame:
            raise NewSequence("the tools or the instructions were changed")
    else:  # stored or sent by others: they belong to the last turn of the model
        written = [index for index, item in enumerate(request.input) if by_model(item)]
        count = written[-1] + 1 if written else len(request.input)
    added = list(request.input[count:])
    if added and by_model(added[0]):
        raise NewSequence("the conversation goes on with a turn that the model did not write")
    return added


def _frame(request: Request) -> list[Any]:
    return [request.params.get(key) or None for key in _FRAME]


class _Opening(NamedTuple):
    """How a rendering begins, up to what the model said. A `light` one shows a short tool in place of the tools."""

    ids: list[int]
    light: bool

    def framed(self, request: Request) -> Request:
        return _light(request) if self.light else request


@dataclass(slots=True)
class Continuation:
    """How the turns of one template are joined. `ends` are the ids that end a turn.

    With `learns`, the id after a turn in the template counts as one, too. `opened` remembers how a rendering begins, so
    that one rendering is enough where the next one begins the same: one without the tools where these change nothing.
    """

    ends: set[int] = field(default_factory=set)
    earlier_reasoning: EarlierReasoning = "keep"
    learns: bool = False
    opened: dict[Any, _Opening] = field(default_factory=dict)

    def ids(self, request: Request) -> Renderings:
        """The ids of a prompt that continues the tokens of the request. Raises `NewSequence` where that cannot be."""
        added = added_items(request)
        before = request.tokens
        assert before is not None
        past = [*before.prompt_ids, *before.generated_ids]
        last = before.generated_ids[-1] if before.generated_ids else None
        if self.learns:
            try:
                tail = yield from self._tail(request, "text", [_ASKED])
            except Failure as error:
                raise _refused(error) from error
            self.ends.add(tail[0])
            self.learns = False
        if not added and last is not None and last not in self.ends:
            return past  # the answer was cut off, and goes on
        if self.earlier_reasoning == "new_sequence" and _has_reasoning(request, len(added)):
            yield from self._keeps_reasoning(request, added)
        rest = yield from self._rest(request, added)
        if rest and last is not None and (last == rest[0] or (last in self.ends and rest[0] in self.ends)):
            rest = rest[1:]
        return past + rest

    def _rest(self, request: Request, added: list[Item]) -> Renderings:
        """The ids from the end of the model's turn on."""
        calls = [item["call_id"] for item in added if item.get("type") == "function_call_output"]
        why = NewSequence("the chat template does not show what the model said")
        for said in ("calls", "text") if calls else ("text",):
            try:
                tail = yield from self._tail(request, said, added)
            except NewSequence as error:
                why = error
                continue
            except Failure as error:
                why = _refused(error)
                continue
            end = next((at for at, id in enumerate(tail[: _NEAR_END[said]]) if id in self.ends), None)
            if end is not None:
                return tail[end:]
            if said == "text":
                return tail
        raise why

    def _tail(self, request: Request, said: str, added: list[Item]) -> Renderings:
        """What follows what the model said, in any rendering with `added` at its end."""
        names = [item.get("name") for item in request.params.get("tools") or ()]
        key = (said, *names, *((item.get("type"), item.get("role")) for item in added))
        if (known := self.opened.get(key)) is not None:
            one = yield _probe(known.framed(request), said, "a", added)
            if one[: len(known.ids)] == known.ids:
                return one[len(known.ids) :]
        one = yield _probe(request, said, "a", added)
        other = yield _probe(request, said, "b", added)
        shared = _common_suffix(one, other)
        if not shared or shared == len(one) or shared == len(other):
            raise NewSequence("the chat template does not show what the model said")
        tail, opening = one[-shared:], _Opening(one[:-shared], light=False)
        if names and request.params.get("tool_choice") in (None, "auto", "none"):
            light = yield _probe(_light(request), said, "a", added)
            if light[-shared:] == tail:
                opening = _Opening(light[:-shared], light=True)
        self.opened[key] = opening
        if len(self.opened) > _REMEMBERED:
            del self.opened[next(iter(self.opened))]
        return tail

    def _keeps_reasoning(self, request: Request, added: list[Item]) -> Generator[Request, list[int], None]:
        one = yield _with(request, [_ASKED, reasoning("a"), message("a"), *added])
        other = yield _with(request, [_ASKED, reasoning("b"), message("a"), *added])
        if one == other:
            raise NewSequence("the chat template drops earlier reasoning")


def render(renderings: Renderings, rendered: Callable[[Request], list[int]]) -> list[int]:
    """Drive renderings with a function."""

    async def at_once(request: Request) -> list[int]:
        return rendered(request)

    try:
        render_async(renderings, at_once).send(None)
    except StopIteration as stop:
        return cast("list[int]", stop.value)
    raise AssertionError("nothing waits")


async def render_async(
    renderings: Renderings, rendered: Callable[[Request], Coroutine[Any, Any, list[int]]]
) -> list[int]:
    """Drive renderings with a coroutine function."""
    try:
        request = next(renderings)
        while True:
            try:
                ids = await rendered(request)
            except Failure as error:
                request = renderings.throw(error)
            else:
                request = renderings.send(ids)
    except StopIteration as stop:
        return cast("list[int]", stop.value)


def _probe(request: Request, said: str, letter: str, added: list[Item]) -> Request:
    if said == "text":
        return _with(request, [_ASKED, message(letter), *added])
    answered = {item["call_id"] for item in added if item.get("type") == "function_call_output"}
    names = {item["call_id"]: item["name"] for item in request.input if item.get("type") == "function_call"}
    ids = [id for id in names if id in answered] + sorted(answered - names.keys())
    calls = [function_call(names.get(id, "f"), {"x": "a"}, call_id=id) for id in ids[:-1]]
    return _with(
        request, [_ASKED, *calls, function_call(names.get(ids[-1], "f"), {"x": letter}, call_id=ids[-1]), *added]
    )


def _with(request: Request, items: list[Item], params: dict[str, Any] | None = None) -> Request:
    return Request(items, request.session, deadline=request.deadline, params=params or request.params)


def _light(request: Request) -> Request:
    """The same request with one short tool: what was added is written the same, and less is rendered."""
    return _with(request, request.input, {**request.params, "tools": [_SHORT_TOOL]})


def _refused(error: Failure) -> NewSequence:
    """A template that refuses the rendering. Anything else that goes wrong is no reason for a new sequence."""
    if error.kind != "bad_request":
        raise error
    return NewSequence(error.cause)


def _has_reasoning(request: Request, added: int) -> bool:
    """Whether the ids hold reasoning since the last message of the user that the model has read."""
    before = request.tokens.conversation if request.tokens is not None else None
    since = before.since if isinstance(before, HeldConversation) else 0
    for item in reversed(request.input[since : len(request.input) - added]):
        if item.get("type") == "reasoning":
            return True
        if item.get("role") == "user":
            return False
    return False


def _common_suffix(one: list[int], other: list[int]) -> int:
    count, most = 0, min(len(one), len(other))
    while count < most and one[-1 - count] == other[-1 - count]:
        count += 1
    return count
