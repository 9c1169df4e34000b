"""Requests to prompt ids, and generated ids to responses, for models that work on tokens with a chat template."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

from ludus.errors import Failure
from ludus.model import Request
from ludus.models import chatml
from ludus.models.token_response import token_response
from ludus.models.transformers_prompt import Prompts, Written, items_of, remember
from ludus.response import Item, Response
from ludus.tokens import Tokens

_REMEMBERED_SESSIONS = 8192


class RenderedPrompt(NamedTuple):
    """A request as the model reads it: the text of the template, and its ids."""

    text: str
    ids: list[int]


class TokenAnswers:
    """One tokenizer with its end ids. Remembers what each session wrote, so that later prompts repeat it id for id.

    Not thread-safe.
    """

    def __init__(self, tokenizer: Any, template_settings: dict[str, Any], *, name: str, context: int) -> None:
        self.prompts = Prompts(tokenizer, template_settings)
        self.ends = self.prompts.end_ids()
        self.name, self.context = name, context
        self._written: OrderedDict[str, Written] = OrderedDict()

    @property
    def remembered(self) -> int:
        """How many sessions have texts here."""
        return len(self._written)

    def prompt(self, request: Request) -> RenderedPrompt:
        """Render a request. Its ids continue those of the session's previous call wherever its text does."""
        text = self.prompts.text(request, self._written.get(request.session or "", {}))
        ids = self.prompts.ids(text, request.tokens)
        if not ids:
            raise Failure("bad_request", "the chat template makes an empty prompt of this conversation")
        return RenderedPrompt(text, ids)

    def response(self, request: Request, prompt: str, stops: list[str], tokens: Tokens, *, complete: bool) -> Response:
        """The response of generated ids: thinking, messages and tool calls. `prompt` is the text of the prompt."""
        ids = tokens.generated_ids
        if not ids:
            return self._response(tokens, [], cut=True)
        raw = self.prompts.decode(ids[:-1] if ids[-1] in self.ends else ids)
        end, stop = min(((raw.index(stop), stop) for stop in stops if stop in raw), default=(len(raw), ""))
        text = raw[:end] + (stop if stop == chatml.CALL_END else "")
        items = items_of(text, prompt, key=f"{request.session}:{len(request.input)}")
        if not complete:
            items[-1]["status"] = "incomplete"
        if request.session:
            remember(self._written.setdefault(request.session, {}), len(request.input), items, raw)
            if len(self._written) > _REMEMBERED_SESSIONS:
                self._written.popitem(last=False)
        return self._response(tokens, items, cut=not complete)

    def forget(self, session: str) -> None:
        """Forget the texts of a finished rollout."""
        self._written.pop(session, None)

    def _response(self, tokens: Tokens, items: list[Item], *, cut: bool) -> Response:
        return token_response(self.name, tokens, items, cut=cut, context=self.context)
