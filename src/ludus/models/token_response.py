"""The response of a model that knows its tokens: the ids give its id, its usage and its stop reason."""

from __future__ import annotations

import hashlib
import time
from typing import Any

from ludus.response import Response, prompt_too_long
from ludus.tokens import Tokens, id_array


def token_response(
    name: str, tokens: Tokens, items: list[dict[str, Any]], *, cut: bool, context: int, cached: int = 0
) -> Response:
    """A response of the model `name`. `cut` says that the answer is incomplete, `cached` how much of the prompt was."""
    ids = id_array(tokens.prompt_ids) + id_array(tokens.generated_ids)
    usage = {
        "input_tokens": len(tokens.prompt_ids),
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": len(tokens.generated_ids),
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": len(ids),
    }
    return Response.of(
        *items,
        model=name,
        tokens=tokens,
        id=f"resp_{hashlib.sha256(ids.tobytes()).hexdigest()[:24]}",
        created_at=int(time.time()),
        status="incomplete" if cut else "completed",
        incomplete_details=_why_cut(tokens, context) if cut else None,
        temperature=(tokens.sampling or {}).get("temperature"),
        top_p=(tokens.sampling or {}).get("top_p"),
        usage=usage,
    )


def _why_cut(tokens: Tokens, context: int) -> dict[str, str]:
    if len(tokens.prompt_ids) < context:
        return {"reason": "max_output_tokens"}
    return prompt_too_long(f"the prompt has {len(tokens.prompt_ids):,} tokens, the context {context:,}")
