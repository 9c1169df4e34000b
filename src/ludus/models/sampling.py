"""The sampling settings of a request, checked, for models that run in this process."""

from __future__ import annotations

from typing import Any, NamedTuple

from ludus.errors import Failure
from ludus.model import Request
from ludus.models import chatml

_HUGE = 2**64


class Sampling(NamedTuple):
    """The sampling settings of one request. Without a seed, each answer is different."""

    temperature: float
    top_p: float
    max_tokens: int
    seed: int | None
    stops: list[str]


def sampling_of(request: Request, config: Any) -> Sampling:
    """The settings of a request, with the model's as defaults. A value of the wrong type is a `bad_request`."""
    params = {key: value for key, value in request.params.items() if value is not None}
    stop = params.get("stop", [])
    stops = [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or not all(isinstance(text, str) for text in stops):
        raise Failure("bad_request", f"stop must be a text or a list of texts, not {stop!r:.40}")
    stops = [text for text in stops if text]  # "" would end every answer at once
    if params.get("parallel_tool_calls") is False and chatml.offered_tools(params):
        stops.append(chatml.CALL_END)
    return Sampling(
        temperature=_number(params, "temperature", config.temperature),
        top_p=_number(params, "top_p", config.top_p),
        max_tokens=max(1, int(_number(params, "max_output_tokens", config.max_output_tokens))),
        seed=int(_number(params, "seed", 0)) if "seed" in params else request.seed,
        stops=stops,
    )


def _number(params: dict[str, Any], key: str, default: float) -> float:
    value = params.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _HUGE:
        raise Failure("bad_request", f"{key} must be a number, not {value!r:.40}")
    return value
