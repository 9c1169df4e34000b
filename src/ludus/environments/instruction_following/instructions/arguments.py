"""The types of instructions' arguments, as rows write them. What does not fit is refused, never guessed or drawn."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints
from pydantic_core import PydanticCustomError


def _number(value: Any) -> Any:
    if isinstance(value, (str, bool)):
        raise PydanticCustomError("int_type", "Input should be a valid integer")
    return value


def _first_of_list(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else value


#: A whole number that is not negative; `2.0` is one, `"2"` is not.
Count = Annotated[int, BeforeValidator(_number), Field(ge=0)]
#: A position that is counted from 1.
Ordinal = Annotated[int, BeforeValidator(_number), Field(ge=1)]
#: A text that is not blank.
Text = Annotated[str, StringConstraints(pattern=r"\S")]
#: A text without the blanks around it; of a list the first entry, since some rows hold a list of one.
Word = Annotated[str, BeforeValidator(_first_of_list), StringConstraints(min_length=1, strip_whitespace=True)]
Words = Annotated[list[Text], Field(min_length=1)]
Letter = Annotated[str, StringConstraints(min_length=1, max_length=1, strip_whitespace=True)]
Relation = Literal["less than", "at least"]


def holds(count: int | None, relation: Relation, wanted: int) -> bool:
    """Whether a count is as the relation wants it. A count that could not be taken is not."""
    if count is None:
        return False
    return count < wanted if relation == "less than" else count >= wanted
