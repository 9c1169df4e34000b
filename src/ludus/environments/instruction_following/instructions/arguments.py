"""The types of the instructions' arguments in a row. A value that does not fit is an error; no default is made up."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints
from pydantic_core import PydanticCustomError


def _not_text_or_bool(value: Any) -> Any:
    if isinstance(value, (str, bool)):
        raise PydanticCustomError("int_type", "Input should be a valid integer")
    return value


def _first_of_list(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else value


#: A whole number, 0 or more: `2.0` is accepted, `"2"` is not.
Count = Annotated[int, BeforeValidator(_not_text_or_bool), Field(ge=0)]
#: A position, counted from 1.
Ordinal = Annotated[int, BeforeValidator(_not_text_or_bool), Field(ge=1)]
#: A text that is not blank.
Text = Annotated[str, StringConstraints(pattern=r"\S")]
#: A text, stripped of whitespace. Some rows hold a list with one text; the first entry is taken.
Word = Annotated[str, BeforeValidator(_first_of_list), StringConstraints(min_length=1, strip_whitespace=True)]
Words = Annotated[list[Text], Field(min_length=1)]
Letter = Annotated[str, StringConstraints(min_length=1, max_length=1, strip_whitespace=True)]
Relation = Literal["less than", "at least"]


def meets(count: int | None, relation: Relation, limit: int) -> bool:
    """Whether a count is less than, or at least, the limit. False if there is no count."""
    if count is None:
        return False
    return count < limit if relation == "less than" else count >= limit
