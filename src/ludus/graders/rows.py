"""Types for the fields of a dataset's rows."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationInfo
from pydantic_core import PydanticCustomError


def _refuse_text_and_bool(value: Any, info: ValidationInfo) -> Any:
    if isinstance(value, (str, bool)) and not (info.context or {}).get("compat"):
        raise PydanticCustomError("int_type", "Input should be a valid integer")
    return value


#: An integer. `"3"` and `true` are refused, although pydantic would read them as 3 and 1. The validation context
#: `{"compat": True}` accepts them.
Integer = Annotated[int, BeforeValidator(_refuse_text_and_bool)]
