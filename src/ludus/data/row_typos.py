"""Mistakes in a row's request: `temperatur`, `contnt` in a message, the role `usr`, or a temperature that is text.

Unknown names and values are sent all the same, because servers have their own parameters. So a mistake is a warning,
not an error.
"""

from __future__ import annotations

import difflib
import functools
import itertools
from dataclasses import dataclass
from typing import Any

_PARAMETERS = frozenset(
    """
    background context_management conversation include input instructions max_output_tokens max_tool_calls metadata
    model parallel_tool_calls previous_response_id prompt prompt_cache_key prompt_cache_retention reasoning
    safety_identifier service_tier store stream stream_options temperature text tool_choice tools top_logprobs top_p
    truncation user
    best_of chat_template chat_template_kwargs extra_body extra_headers extra_query frequency_penalty functions
    guided_choice guided_grammar guided_json guided_regex ignore_eos length_penalty logit_bias logprobs
    max_completion_tokens max_tokens messages min_p min_tokens modalities n presence_penalty prompt_logprobs
    reasoning_effort repetition_penalty response_format seed skip_special_tokens stop stop_token_ids structured_outputs
    thinking timeout top_a top_k typical_p verbosity web_search_options
    """.split()
)
_ITEM = frozenset(
    """
    action annotations arguments call_id content encrypted_content id logprobs name namespace output phase reasoning
    reasoning_content refusal role status summary tool_call_id tool_calls type
    """.split()
)
_PART = frozenset(
    """
    annotations audio cache_control data detail file_data file_id file_url filename format image_url input_audio
    logprobs refusal text type video_url
    """.split()
)
_TOOL = frozenset("allowed_callers defer_loading description function name parameters strict type".split())

_ROLES = frozenset("assistant developer system tool user".split())
_NUMBERS = ("temperature", "top_p")
#: Names of Chat Completions, and what the Responses API calls them.
_CHAT_NAMES = {"max_tokens": "max_output_tokens", "max_completion_tokens": "max_output_tokens"}

#: The types whose names we know. Items and tools of other types are not checked.
_ITEM_TYPES = (None, "message", "function_call", "function_call_output", "reasoning")
_TOOL_TYPES = (None, "function")

#: A row may hold any number of names. More than these are not checked.
_MOST_NAMES = 200
_MOST_WARNINGS = 20


class RowTypos:
    """Collects the misspelled names of many rows, each once, with the first row that has it."""

    def __init__(self) -> None:
        self._typos: dict[tuple[str, str], _Typo] = {}  # by the place (without its index) and the name

    def look(self, where: str, params: dict[str, Any]) -> None:
        """Look at the `responses_create_params` of the row at `where`."""
        self._compare(where, "responses_create_params", None, params, _PARAMETERS)
        self._check_values(where, params)
        items, tools = params.get("input"), params.get("tools")
        for index, item in enumerate(items if isinstance(items, list) else ()):
            if isinstance(item, dict) and item.get("type") in _ITEM_TYPES:
                self._compare(where, "input[%d]", index, item, _ITEM)
                self._check_role(where, index, item.get("role"))
                content = item.get("content")
                for part in content if isinstance(content, list) else ():
                    if isinstance(part, dict):
                        self._compare(where, "input[%d].content", index, part, _PART)
        for index, tool in enumerate(tools or ()):
            if tool.get("type") in _TOOL_TYPES:
                self._compare(where, "tools[%d]", index, tool, _TOOL)

    def warnings(self) -> list[str]:
        """One sentence for each misspelled name."""
        return [typo.warning + _more(typo.rows - 1) for typo in self._typos.values()]

    def _compare(self, where: str, place: str, index: int | None, keys: dict[str, Any], known: frozenset[str]) -> None:
        if known.issuperset(keys):
            return
        for name in itertools.islice(keys, _MOST_NAMES):
            if name in known or (meant := _similar(name, known)) is None or meant in keys:
                continue
            self._add(where, place, index, name, f"is unknown. Did you mean {meant}?")

    def _check_values(self, where: str, params: dict[str, Any]) -> None:
        for name, meant in _CHAT_NAMES.items():
            if name in params and meant not in params:
                problem = f"is a name of Chat Completions. Write {meant}"
                self._add(where, "responses_create_params", None, name, problem)
        for name in _NUMBERS:
            value = params.get(name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
                problem = f"must be a number, not {value!r:.40}. Example: 1.0"
                self._add(where, "responses_create_params", None, name, problem)

    def _check_role(self, where: str, index: int, role: Any) -> None:
        if isinstance(role, str) and role not in _ROLES:
            meant = next(iter(difflib.get_close_matches(role[:100].strip().lower(), _ROLES, n=1)), None)
            hint = f"Did you mean {meant}?" if meant else f"Write one of {', '.join(sorted(_ROLES))}"
            self._add(where, "input[%d]", index, "role", f"is {role!r:.40}; that is not a role. {hint}")

    def _add(self, where: str, place: str, index: int | None, name: str, problem: str) -> None:
        """Count a mistake in the row at `where`. Only the first row that has it is quoted."""
        typo = self._typos.get((place, name))
        if typo is None:
            if len(self._typos) == _MOST_WARNINGS:
                return
            path = place if index is None else place % index
            typo = self._typos[place, name] = _Typo(f"{where}: {path}.{name} {problem}")
        typo.rows += typo.last_row != where
        typo.last_row = where


@dataclass
class _Typo:
    """A misspelled name: the warning about the first row with it, and the number of rows."""

    warning: str
    rows: int = 0
    last_row: str = ""


def _more(rows: int) -> str:
    return f" ({rows:,} more {'row has' if rows == 1 else 'rows have'} it)" if rows else ""


@functools.lru_cache(maxsize=4096)
def _similar(name: str, known: frozenset[str]) -> str | None:
    """The known name that a misspelled name most likely means."""
    plain = name[:100].strip().lower().replace("-", "_")
    return next(iter(difflib.get_close_matches(plain, known, n=1, cutoff=0.8)), None)
