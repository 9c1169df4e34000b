"""Checks an answer against a schema, in plain functions that can run in another process and never raise.

A finding is a pair: the type of the error and its message, or two Nones. If an answer fails our check and the
reference's, the reference's finding is reported, so that results can be compared with those of the reference.
"""

from __future__ import annotations

import json
from functools import cached_property, lru_cache
from typing import Any

from ludus.environments.structured_outputs.coercion import (
    coerced_csv,
    coerced_xml,
    plainly_coerced_csv,
    plainly_coerced_xml,
)
from ludus.graders.formats import Format, FormatError, described, parse
from ludus.graders.schemas import Validator, is_tree, strict, strict_without_lists

Finding = tuple[str | None, str | None]

FITS: Finding = (None, None)

#: If answer and schema are at most this long, a check that reads each part once takes milliseconds.
SHORT = 4_000

#: The only type that the root can have, for formats with only one.
_ROOTS = {"csv": "array", "toml": "object", "xml": "object"}


class Rules:
    """A schema's validators: ours and the reference's. Cached, since a row is answered many times."""

    def __init__(self, schema_text: str) -> None:
        self.schema = json.loads(schema_text)
        self.discriminated = '"discriminator"' in schema_text

    @cached_property
    def ours(self) -> Validator:
        return Validator(strict(self.schema))

    @cached_property
    def reference(self) -> Validator:
        schema = strict_without_lists(self.schema)
        if schema == strict(self.schema) and not self.discriminated:
            return self.ours
        return Validator(schema, openapi=True)

    def unfit(self, format: Format) -> str | None:
        """Why no answer in this format can fit the schema; None if one can."""
        if self.ours.schema_problem is not None:
            return "the schema is not valid"
        types = self.schema.get("type") if isinstance(self.schema, dict) else None
        root = _ROOTS.get(format)
        if types is None or root is None or root in (types if isinstance(types, list) else [types]):
            return None
        return f"{format} can only hold an {root} and the schema asks for another type"


@lru_cache(maxsize=256)
def rules_of(schema_text: str) -> Rules:
    """The validators of a schema. Raises ValueError for a text that is not JSON."""
    return Rules(schema_text)


def is_quick(schema_text: str, answer: str) -> bool:
    """Whether a check is sure to be short, so that it can run on a thread."""
    if len(answer) > SHORT or len(schema_text) > SHORT:
        return False
    try:
        return is_tree(rules_of(schema_text).schema)
    except (ValueError, RecursionError):
        return True


def check(kind: str, schema_text: str, answer: str, *how: Any) -> tuple[Finding, str | None]:
    """The finding for an answer of kind `text` or `payload`, and the row's problem if no answer can fit."""
    try:
        return _check_text(schema_text, answer, *how) if kind == "text" else _check_payload(schema_text, answer, *how)
    except (RecursionError, MemoryError) as error:
        return ("validation_error", described(error)), None


def _check_text(schema_text: str, text: str, format: Format, coerce: bool, compat: bool) -> tuple[Finding, str | None]:
    """Check a text in a format."""
    try:
        rules = rules_of(schema_text)
    except (ValueError, RecursionError) as error:
        return ("schema_error", described(error)), "the schema is not JSON"
    try:
        value = parse(text, format)
    except FormatError as error:
        return ("parse_error", str(error)), rules.unfit(format)
    return _finding_of(rules, value, format, coerce, compat), rules.unfit(format)


def _check_payload(schema_text: str, arguments: str, key: str | None, compat: bool) -> tuple[Finding, str | None]:
    """Check the arguments of a function call, or the argument under a key."""
    try:
        payload = parse(arguments, "json")
    except FormatError as error:
        return ("tool_arguments_parse_error", str(error)), None
    if key is not None:
        if not isinstance(payload, dict) or key not in payload:
            return ("missing_tool_payload_key", None), None
        payload = payload[key]
    try:
        rules = rules_of(schema_text)
    except (ValueError, RecursionError) as error:
        return ("schema_error", described(error)), "the schema is not JSON"
    return _finding_of(rules, payload, "json", False, compat), rules.unfit("json")


def _finding_of(rules: Rules, value: Any, format: Format, coerce: bool, compat: bool) -> Finding:
    if compat:
        return _reference_finding(rules, value, format, coerce)
    finding = _our_finding(rules, value, format, coerce)
    if finding == FITS:
        return FITS
    reference = _reference_finding(rules, value, format, coerce, same=finding)
    return finding if reference == FITS else reference


def _our_finding(rules: Rules, value: Any, format: Format, coerce: bool) -> Finding:
    if format == "csv" and not value:
        return "validation_error", "NoRecords: a header, or a line of prose, is not a table"
    if rules.ours.schema_problem is not None:
        return _finding(rules.ours.schema_problem)
    if format == "csv":
        value = coerced_csv(value, rules.schema)
    elif format == "xml" and coerce:
        value = coerced_xml(value, rules.schema)
    return _finding(rules.ours.problem(value))


def _reference_finding(rules: Rules, value: Any, format: Format, coerce: bool, same: Finding | None = None) -> Finding:
    """The reference's finding. `same` is our finding, which is returned if both use the same validator."""
    try:
        if format == "csv":
            value = plainly_coerced_csv(value, rules.schema)
        elif format == "xml" and coerce:
            value = plainly_coerced_xml(value, rules.schema)
        elif same is not None and rules.reference is rules.ours:
            return same
        return _finding(rules.reference.problem(value))
    except Exception as error:  # the reference's strict schemas are sometimes invalid
        return _finding(described(error))


def _finding(problem: str | None) -> Finding:
    return FITS if problem is None else ("validation_error", problem)
