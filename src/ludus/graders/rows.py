"""Types for the fields of rows."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationInfo
from pydantic_core import PydanticCustomError


def _number(value: Any, info: ValidationInfo) -> Any:
    if isinstance(value, (str, bool)) and not (info.context or {}).get("compat"):
        raise PydanticCustomError("int_type", "Input should be a valid integer")
    return value


#: A whole number that is written as one. `"3"` and `true` are refused, where pydantic alone would read 3 and 1, unless
#: the row is checked with the context `{"compat": True}`.
Integer = Annotated[int, BeforeValidator(_number)]
