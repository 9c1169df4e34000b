"""Objects that an endpoint sent, with the methods of the models of OpenAI's client: unknown fields are kept.

The settings that a response repeats, such as its tools, are read by attributes (`response.tools[0].name`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, TypeAdapter, ValidationError, model_validator


def fields_of_model(value: Any) -> Any:
    """The fields that were set of a pydantic model, such as an object of OpenAI's package; other values unchanged."""
    return value.model_dump(exclude_unset=True, warnings=False) if isinstance(value, BaseModel) else value


class Received(BaseModel):
    """An object of an endpoint. Unknown fields are kept."""

    model_config = ConfigDict(extra="allow")

    @classmethod
    def model_construct(cls, _fields_set: set[str] | None = None, **values: Any) -> Self:
        """An object without validation. Mappings become objects where they fit; every other value stays as it is."""
        built = {
            name: _built(cls, name, value) if name in cls.model_fields and isinstance(value, (Mapping, list)) else value
            for name, value in values.items()
        }
        return super().model_construct(_fields_set, **built)

    def to_dict(
        self,
        *,
        mode: Literal["json", "python"] = "python",
        exclude_unset: bool = True,
        exclude_defaults: bool = False,
        exclude_none: bool = False,
        **options: Any,
    ) -> dict[str, Any]:
        """The fields that were set. `options`, such as `use_api_names`, change nothing: no field has another name."""
        return self.model_dump(
            mode=mode, exclude_unset=exclude_unset, exclude_defaults=exclude_defaults, exclude_none=exclude_none
        )

    def to_json(
        self,
        *,
        indent: int | None = 2,
        exclude_unset: bool = True,
        exclude_defaults: bool = False,
        exclude_none: bool = False,
        **options: Any,
    ) -> str:
        """The fields that were set, as JSON text."""
        return self.model_dump_json(
            indent=indent, exclude_unset=exclude_unset, exclude_defaults=exclude_defaults, exclude_none=exclude_none
        )


#: The fields of answers in which authors put objects of OpenAI's package, and those that hold lists of such objects.
_OBJECTS = ("error", "incomplete_details", "message", "reasoning", "text", "tool_choice", "usage")
_LISTS = ("choices", "tools")


class Answer(Received):
    """An answer of an endpoint. Objects of OpenAI's package are taken by their fields: it itself, and its fields.

    Its parts are plain models, because a validator in Python costs as much as the rest of a small object.
    """

    @model_validator(mode="before")
    @classmethod
    def _take_models(cls, value: Any) -> Any:
        if isinstance(value, cls):
            return value
        fields = fields_of_model(value)
        if not isinstance(fields, dict):
            return fields
        foreign = {name: fields_of_model(fields[name]) for name in _OBJECTS if _is_foreign(fields.get(name))}
        for name in _LISTS:
            if (elements := fields.get(name)) and any(map(_is_foreign, elements)):
                foreign[name] = [fields_of_model(element) for element in elements]
        return {**fields, **foreign} if foreign else fields


def _is_foreign(value: Any) -> bool:
    return isinstance(value, BaseModel) and not isinstance(value, Received)


@lru_cache(maxsize=256)
def _validator(owner: type[BaseModel], name: str) -> TypeAdapter[Any]:
    field = owner.model_fields[name]
    annotation: Any = field.annotation
    for note in field.metadata:
        annotation = Annotated[annotation, note]
    return TypeAdapter(annotation)


def _built(owner: type[BaseModel], name: str, value: Any) -> Any:
    """A field's value with objects in place of mappings. Each element of a list is tried alone."""
    validator = _validator(owner, name)
    if not isinstance(value, list):
        return _object(value, validator.validate_python, owner.model_fields[name].annotation)
    return [
        _object(element, lambda value: validator.validate_python([value])[0], owner.model_fields[name].annotation)
        if isinstance(element, Mapping)
        else element
        for element in value
    ]


def _object(value: Mapping[str, Any], validate: Callable[[Any], Any], annotation: Any) -> Any:
    """The object of a mapping: a valid one, else one of the annotation's class without validation."""
    try:
        return validate(value)
    except ValidationError:
        classes = [kind for kind in (annotation, *get_args(annotation)) if isinstance(kind, type)]
        made = next((kind for kind in classes if issubclass(kind, Received)), None)
        return made.model_construct(**value) if made is not None else value


class NeMoGymResponseTool(Received):
    """A tool of a response. Its fields depend on its type."""


class NeMoGymResponseToolChoice(Received):
    """The choice of one tool, or of a kind of tools."""


class NeMoGymReasoning(Received):
    """How the model reasoned."""

    effort: str | None = None
    summary: str | None = None


class NeMoGymTextFormat(Received):
    """The form of a text: `text`, `json_object` or `json_schema`."""


class NeMoGymResponseTextConfig(Received):
    """The form of a response's texts."""

    format: NeMoGymTextFormat | None = None
    verbosity: str | None = None


class Fields(dict[str, Any]):
    """A dictionary whose entries can be read as attributes, too; so can dictionaries and lists of them within."""

    def __getattr__(self, name: str) -> Any:
        try:
            return _readable(self[name])
        except KeyError:
            raise AttributeError(name) from None


def _readable(value: Any) -> Any:
    if type(value) is list:
        return [_readable(element) for element in value] if any(type(element) is dict for element in value) else value
    return Fields(value) if type(value) is dict else value


#: A value that authors read by key and by attribute, such as a citation.
ReadableValue = Annotated[Any, AfterValidator(_readable)]
