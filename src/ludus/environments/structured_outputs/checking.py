"""What is wrong with an answer, by plain functions that can run in another process and never raise.

A finding is a pair: the type of the error and its message, or two Nones. The answer is read as it should be; where it
fails, and the reference's reading fails too, the reference's finding is reported, so that the two can be compared.
"""

from __future__ import annotations

import json
from functools import cached_property, lru_cache
from typing import Any

from ludus.graders.coercion import coerced_csv, coerced_xml, plainly_coerced_csv, plainly_coerced_xml
from ludus.graders.formats import Format, FormatError, described, parse
from ludus.graders.schemas import Validator, is_tree, strict, strict_without_lists

Finding = tuple[str | None, str | None]

FITS: Finding = (None, None)

#: Up to this length of the answer and of the schema, a check that looks at everything once takes milliseconds.
SHORT = 4_000

#: What each format can only ever hold, where that is one thing.
_ROOTS = {"csv": "array", "toml": "object", "xml": "object"}


class Rules:
    """A schema as both readings want it. Kept from call to call, since rows are answered many times."""

    def __init__(self, schema_text: str) -> None:
        self.schema = json.loads(schema_text)
        self.discriminated = '"discriminator"' in schema_text

    @cached_property
    def right(self) -> Validator:
        return Validator(strict(self.schema))

    @cached_property
    def reference(self) -> Validator:
        blind = strict_without_lists(self.schema)
        if blind == strict(self.schema) and not self.discriminated:
            return self.right
        return Validator(blind, openapi=True)

    def unfit(self, format: Format) -> str | None:
        """Why no answer can fit, whatever the model writes."""
        if self.right.schema_problem is not None:
            return "the schema is not valid"
        wanted = self.schema.get("type") if isinstance(self.schema, dict) else None
        root = _ROOTS.get(format)
        if wanted is None or root is None or root in (wanted if isinstance(wanted, list) else [wanted]):
            return None
        return f"{format} can only hold an {root} and the schema asks for another type"


@lru_cache(maxsize=256)
def rules_of(schema_text: str) -> Rules:
    """The rules of a schema. Raises ValueError for a text that is not JSON."""
    return Rules(schema_text)


def is_quick(schema_text: str, answer: str) -> bool:
    """Whether a check is sure to end soon, so that it needs no process of its own."""
    if len(answer) > SHORT or len(schema_text) > SHORT:
        return False
    try:
        return is_tree(rules_of(schema_text).schema)
    except (ValueError, RecursionError):
        return True


def check(kind: str, schema_text: str, answer: str, *how: Any) -> tuple[Finding, str | None]:
    """What is wrong with an answer of kind `text` or `payload`, and why the row is at fault if it is."""
    try:
        return _check_text(schema_text, answer, *how) if kind == "text" else _check_payload(schema_text, answer, *how)
    except (RecursionError, MemoryError) as error:
        return ("validation_error", described(error)), None


def _check_text(schema_text: str, text: str, format: Format, coerce: bool, compat: bool) -> tuple[Finding, str | None]:
    """A text in a format."""
    try:
        rules = rules_of(schema_text)
    except (ValueError, RecursionError) as error:
        return ("schema_error", described(error)), "the schema is not JSON"
    try:
        value = parse(text, format)
    except FormatError as error:
        return ("parse_error", str(error)), rules.unfit(format)
    return _judged(rules, value, format, coerce, compat), rules.unfit(format)


def _check_payload(schema_text: str, arguments: str, key: str | None, compat: bool) -> tuple[Finding, str | None]:
    """The arguments of a function call, or what they hold under a key."""
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
    return _judged(rules, payload, "json", False, compat), rules.unfit("json")


def _judged(rules: Rules, value: Any, format: Format, coerce: bool, compat: bool) -> Finding:
    if compat:
        return _as_reference(rules, value, format, coerce)
    finding = _rightly(rules, value, format, coerce)
    if finding == FITS:
        return FITS
    reference = _as_reference(rules, value, format, coerce, same=finding)
    return finding if reference == FITS else reference


def _rightly(rules: Rules, value: Any, format: Format, coerce: bool) -> Finding:
    if format == "csv" and not value:
        return "validation_error", "NoRecords: a header, or a line of prose, is not a table"
    if rules.right.schema_problem is not None:
        return _finding(rules.right.schema_problem)
    if format == "csv":
        value = coerced_csv(value, rules.schema)
    elif format == "xml" and coerce:
        value = coerced_xml(value, rules.schema)
    return _finding(rules.right.problem(value))


def _as_reference(rules: Rules, value: Any, format: Format, coerce: bool, same: Finding | None = None) -> Finding:
    """What the reference finds; `same` spares the work where the right reading is its reading too."""
    try:
        if format == "csv":
            value = plainly_coerced_csv(value, rules.schema)
        elif format == "xml" and coerce:
            value = plainly_coerced_xml(value, rules.schema)
        elif same is not None and rules.reference is rules.right:
            return same
        return _finding(rules.reference.problem(value))
    except Exception as error:  # its way of closing objects breaks some schemas
        return _finding(described(error))


def _finding(problem: str | None) -> Finding:
    return FITS if problem is None else ("validation_error", problem)
