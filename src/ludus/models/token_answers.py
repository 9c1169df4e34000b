"""Requests to prompt ids, and generated ids to responses, for models that work on tokens with a chat template."""

from __future__ import annotations

from typing import Any, NamedTuple

from ludus.dialects.chat_reasoning import OPENING
from ludus.errors import Failure
from ludus.model import Request
from ludus.models import chatml
from ludus.models.families import FamilyReader
from ludus.models.history import Continuation, EarlierReasoning, NewSequence, keep_history, render
from ludus.models.token_response import token_response
from ludus.models.transformers_prompt import Prompts, items_of
from ludus.response import Item, Response
from ludus.tokens import Tokens


class RenderedPrompt(NamedTuple):
    """A request as the model reads it: the text of the template, which may lack earlier turns, and all ids.

    `broke` says why the ids do not continue those of the previous call.
    """

    text: str
    ids: list[int]
    broke: str | None = None


class TokenAnswers:
    """One tokenizer with its end ids. Prompts continue the ids of the previous call. Not thread-safe."""

    def __init__(
        self,
        tokenizer: Any,
        template_settings: dict[str, Any],
        *,
        name: str,
        context: int,
        earlier_reasoning: EarlierReasoning = "keep",
        family: str = "",
    ) -> None:
        self.prompts = Prompts(tokenizer, template_settings)
        self._continuation = Continuation(self.prompts.end_ids(), earlier_reasoning)
        self.name, self.context = name, context
        self._family = FamilyReader(family, tokenizer) if family else None
        self.ends.update(self._family.ends() if self._family else ())

    @property
    def ends(self) -> set[int]:
        """The ids that end a turn. More may be added."""
        return self._continuation.ends

    def prompt(self, request: Request) -> RenderedPrompt:
        """Render a request. Its ids continue those of the previous call, if it continues its conversation."""
        texts: list[str] = []

        def rendered(asked: Request) -> list[int]:
            texts.append(self.prompts.text(asked))
            return self.prompts.ids(texts[-1])

        broke = None
        try:
            ids = render(self._continuation.ids(request), rendered)
        except NewSequence as why:
            broke, ids = str(why), rendered(request)
        if not ids:
            raise Failure("bad_request", "the chat template makes an empty prompt of this conversation")
        if not texts and request.input[-1].get("type") == "reasoning":
            texts = [OPENING]  # the thinking was cut off, and goes on
        return RenderedPrompt(texts[-1] if texts else "", ids, broke)

    def response(
        self, request: Request, prompt: RenderedPrompt, stops: list[str], tokens: Tokens, *, complete: bool
    ) -> Response:
        """The response of generated ids: thinking, messages and tool calls."""
        ids = tokens.generated_ids
        tokens.broke = prompt.broke
        if not ids:
            return self._response(request, tokens, [], cut=True)
        raw = self.prompts.decode(ids[:-1] if ids[-1] in self.ends else ids)
        end, stop = min(((raw.index(stop), stop) for stop in stops if stop in raw), default=(len(raw), ""))
        text = raw[:end] + (stop if stop == chatml.CALL_END else "")
        key = f"{request.session}:{len(request.input)}"
        if self._family is None:
            items = items_of(text, prompt.text, key=key)
        else:
            tools = chatml.offered_tools(request.params)
            items = self._family.items(ids, prompt.ids, tools, text, stop.removesuffix(chatml.CALL_END), key=key)
        if not complete:
            items[-1]["status"] = "incomplete"
        return self._response(request, tokens, items, cut=not complete)

    def _response(self, request: Request, tokens: Tokens, items: list[Item], *, cut: bool) -> Response:
        return keep_history(request, token_response(self.name, tokens, items, cut=cut, context=self.context))
