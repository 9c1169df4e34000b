"""What a model server says about itself on `/metrics`, in the text format of Prometheus.

| | vLLM | SGLang (`--enable-metrics`) | llama.cpp (`--metrics`) |
| --- | --- | --- | --- |
| running | `num_requests_running` | `num_running_reqs` | `requests_processing` |
| waiting | `num_requests_waiting` | `num_queue_reqs` | `requests_deferred` |
| cache | `kv_cache_usage_perc` | `token_usage` | `kv_cache_usage_ratio` |
| preempted | `num_preemptions_total` | `num_retracted_requests_total` | |
| queries, hits | `prefix_cache_queries_total`, `…_hits_total` | `prompt_tokens_total`, `cached_tokens_total` | |

A server's text is not trusted: a line that is no sample, and a value that makes no sense, is as good as missing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable

from ludus.model import ServerLoad

#: Text beyond this is not read: servers write about 100 KB.
MOST_CHARACTERS = 1_000_000

#: The fields of a load, each with the names that servers have for it, newest first.
_NAMES: dict[str, tuple[str, ...]] = {
    "running": ("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing"),
    "waiting": ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred"),
    "cache": (
        "vllm:kv_cache_usage_perc",
        "vllm:gpu_cache_usage_perc",
        "sglang:token_usage",
        "llamacpp:kv_cache_usage_ratio",
    ),
    "preempted": (
        "vllm:num_preemptions_total",
        "vllm:num_preemptions",
        "sglang:num_retracted_requests_total",
        "sglang:num_retracted_reqs_total",
    ),
    "queries": (
        "vllm:prefix_cache_queries_total",
        "vllm:prefix_cache_queries",
        "vllm:gpu_prefix_cache_queries_total",
        "sglang:prompt_tokens_total",
    ),
    "hits": (
        "vllm:prefix_cache_hits_total",
        "vllm:prefix_cache_hits",
        "vllm:gpu_prefix_cache_hits_total",
        "sglang:cached_tokens_total",
    ),
    "generated": ("vllm:generation_tokens_total", "sglang:generation_tokens_total", "llamacpp:tokens_predicted_total"),
}

#: A server of several engines has a sample for each. The fullest cache decides; everything else is added up.
_JOINED: dict[str, Callable[[Iterable[float]], float]] = {"cache": max}

_SAMPLE = re.compile(
    rf"\n({'|'.join(name for names in _NAMES.values() for name in names)})"
    r"(?:\{(?:[^\"\n}]|\"(?:[^\"\\\n]|\\.)*\")*\})?[ \t]+([^ \t\r\n]{1,40})"
)


def read_server_load(text: str) -> ServerLoad | None:
    """The load of a server. None if the text has neither its running nor its waiting requests."""
    samples: dict[str, list[float]] = {}
    for sample in _SAMPLE.finditer("\n" + text[:MOST_CHARACTERS]):
        if (value := _number(sample[2])) is not None:
            samples.setdefault(sample[1], []).append(value)
    fields: dict[str, float] = {}
    for field, names in _NAMES.items():
        values = next((samples[name] for name in names if name in samples), None)
        if values is not None:
            fields[field] = _JOINED.get(field, sum)(values)
    if fields.get("cache", 0.0) > 1.0:
        del fields["cache"]
    return ServerLoad(**fields) if "running" in fields or "waiting" in fields else None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
