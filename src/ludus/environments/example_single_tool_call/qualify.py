"""How qualification plays this environment, which gives every rollout reward 1 on purpose."""

from __future__ import annotations

from typing import Any

_WHY = "every rollout earns 1: this environment shows how tools are called and judges nothing"
_FAMILIES = "empty echo constant enumeration tag_stuffing judge_injection premature_stop tool_spam"

expected_exploits = {family: (1.0, _WHY) for family in _FAMILIES.split()}


def oracle(task: Any) -> list[Any]:
    """Call the tool, then answer."""
    return [{"call": "get_weather", "arguments": {"city": "Oslo"}}, "It is cold."]


def preserving(task: Any) -> dict[str, Any]:
    """Call the tool twice."""
    return {"twice": [{"call": "get_weather", "arguments": {"city": "Oslo"}}] * 2 + ["It is cold."]}
