"""One set of options: the fields of `Options` are the keyword arguments, the command's options and the help texts."""

from __future__ import annotations

import inspect
import pydoc
from typing import Any, get_type_hints

import pytest

import ludus
from ludus import Model, UserError
from ludus.cli import command_line
from ludus.collection.options import CollectArguments, Options
from ludus.prompt import PromptTemplate

CALLS = [ludus.collect, ludus.collect_async, ludus.stream]

#: What the module of the options imports for type checkers only.
TYPES = {"Model": Model, "PromptTemplate": PromptTemplate}


def test_the_typed_keyword_arguments_are_the_options_in_the_same_order():
    fields = [(spec.name, get_type_hints(part, localns=TYPES)[spec.name]) for part, spec, _ in Options.all()]
    assert list(get_type_hints(CollectArguments, localns=TYPES).items()) == fields


@pytest.mark.parametrize("call", CALLS)
def test_the_signature_and_the_help_of_a_call_show_every_option(call: Any):
    names, shown = list(inspect.signature(call).parameters), pydoc.render_doc(call, renderer=pydoc.plaintext)
    for _, spec, text in Options.all():
        assert spec.name in names
        assert f"{spec.name}: {text.help}" in shown


def test_the_command_takes_every_option_with_its_help_and_its_default():
    group: Any = command_line("collect")
    command = group.commands["collect"] if hasattr(group, "commands") else group
    taken = {parameter.name: parameter for parameter in command.params}
    for _, spec, text in Options.all():
        parameter = taken.pop(spec.name)
        assert parameter.help == text.help, spec.name
        assert parameter.default == spec.default, spec.name
    assert set(taken) == {"environment", "env", "pass_", "json_"}


def test_replaced_options_keep_the_others_and_are_checked_again():
    options = Options(model="openai:x", repeats=4, output="out", shard="02/8")
    other = options.replace(repeats=2, enough=1)
    assert other.values() == {**options.values(), "repeats": 2, "enough": 1}
    assert other.rows.shard == "2/8"
    with pytest.raises(UserError, match="--enough 3 is more than --repeats 2"):
        other.replace(enough=3)
