"""How many tokens a request has: programs ask, to decide when to shorten a conversation."""

from __future__ import annotations

from typing import Any

from ludus.model import Model, Request
from ludus.runtime.encoding import encode

#: Characters of a token, about, for a model whose tokenizer is not here.
_CHARACTERS = 4
#: The fields of an item that the model reads.
_TEXTS = ("name", "arguments", "input", "output", "content", "summary")
#: Tokens of an image or a file, about. Their bytes say little about it.
_TOKENS_OF_A_FILE = 1000


async def count_tokens(model: Model | None, body: dict[str, Any]) -> int:
    """The tokens of a Responses request: those of the model's tokenizer, or an estimate where it has none here."""
    prompt = body.get("input")
    if model is not None and isinstance(prompt, str | list):
        params = {key: value for key, value in body.items() if key != "input" and value is not None}
        if (count := await model.count_tokens(Request(prompt, params=params))) is not None:
            return count
    return estimated_tokens(body)


def estimated_tokens(body: dict[str, Any]) -> int:
    """About how many tokens a Responses request has: a quarter of its characters, tools included."""
    prompt, tools = body.get("input"), body.get("tools")
    characters = len(str(body.get("instructions") or "")) + (len(encode(tools)) if tools else 0)
    if isinstance(prompt, str):
        characters += len(prompt)
    for item in prompt if isinstance(prompt, list) else ():
        characters += sum(_length(item.get(key)) for key in _TEXTS)
    return -(-characters // _CHARACTERS)


def _length(content: Any) -> int:
    if isinstance(content, str):
        return len(content)
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    texts = [next((part[key] for key in ("text", "refusal") if isinstance(part.get(key), str)), None) for part in parts]
    return sum(_TOKENS_OF_A_FILE * _CHARACTERS if text is None else len(text) for text in texts)
