"""How a request wants its answer sampled, as the models in this process read it: what a row says is checked here."""

from __future__ import annotations

from typing import Any, NamedTuple

from ludus.errors import Failure
from ludus.model import Request
from ludus.models import chatml

_HUGE = 2**64


class Sampling(NamedTuple):
    """The settings of one request. Without a seed, each sample is another."""

    temperature: float
    top_p: float
    most: int
    seed: int | None
    stops: list[str]


def sampling_of(request: Request, config: Any) -> Sampling:
    """What a request says, and the model's settings where it does not. A value of the wrong kind is a `bad_request`."""
    said = {key: value for key, value in request.params.items() if value is not None}
    stop = said.get("stop", [])
    stops = [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or not all(isinstance(each, str) for each in stops):
        raise Failure("bad_request", f"stop must be a text or a list of texts, not {stop!r:.40}")
    stops = [each for each in stops if each]  # "" would end any answer
    if said.get("parallel_tool_calls") is False and chatml.offered_tools(said):
        stops.append(chatml.CALL_END)
    return Sampling(
        temperature=_number(said, "temperature", config.temperature),
        top_p=_number(said, "top_p", config.top_p),
        most=max(1, int(_number(said, "max_output_tokens", config.max_output_tokens))),
        seed=int(_number(said, "seed", 0)) if "seed" in said else request.seed,
        stops=stops,
    )


def _number(said: dict[str, Any], key: str, default: float) -> float:
    value = said.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _HUGE:
        raise Failure("bad_request", f"{key} must be a number, not {value!r:.40}")
    return value
