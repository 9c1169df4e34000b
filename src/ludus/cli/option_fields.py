"""A collection's options as options of a command: made of the fields of `ludus.collection.options`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

from ludus.cli.commands import Option
from ludus.collection.options import Options


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a collection to a command, which gets those that were typed as keyword arguments.

    They stand between its other parameters: after the positional ones, before those that follow `*`.
    """
    parsers = {spec.name: text.parse for _, spec, text in Options.all() if text.parse is not None}

    @functools.wraps(command)
    def parsed(**typed: Any) -> None:
        values = {name: value for name, value in typed.items() if value is not None}
        command(**{name: parsers[name](value) if name in parsers else value for name, value in values.items()})

    own = inspect.signature(command, eval_str=True).parameters.values()
    first = [
        parameter.replace(kind=parameter.KEYWORD_ONLY)
        for parameter in own
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    last = [parameter for parameter in own if parameter.kind is parameter.KEYWORD_ONLY]
    parameters = [*first, *_parameters(), *last]
    parsed.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    parsed.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return parsed


def _parameters() -> list[inspect.Parameter]:
    """A parameter for each option, as `Command` reads it."""
    parameters = []
    for part, spec, text in Options.all():
        kind: Any = text.typed or spec.type
        flags, least, most = text.flags, text.least, text.most
        if kind is bool and not flags:
            flags = (f"--{spec.name.replace('_', '-')}",)  # so that there is no --no-...
        if text.typed is not None:
            least = most = None  # `parse` checks it
            kind = kind if spec.default is not None else kind | None
        taken = Option(*flags, metavar=text.metavar, help=text.help, min=least, max=most, panel=part.title)
        keyword, annotation = inspect.Parameter.KEYWORD_ONLY, Annotated[kind, taken]
        parameters.append(inspect.Parameter(spec.name, keyword, default=spec.default, annotation=annotation))
    return parameters
