"""Commands in help texts can be copied: each is one line of its terminal, or is broken with a backslash."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import click
import pytest

from ludus.cli import command_line
from ludus.cli.help_text import example_of, laid_out

WIDTHS = [60, 80, 120]


def commands(command: Any, words: str = "ludus") -> Iterator[tuple[str, Any]]:
    yield words, command
    for name, member in getattr(command, "commands", {}).items():
        yield from commands(member, f"{words} {name}")


ALL = dict(commands(command_line()))


def copied(shown: str) -> list[list[str]]:
    """The words of each command in a help text, as a shell reads the lines."""
    joined = shown.replace("\\\n", " ")
    lines = (line.strip().partition("Example: ") for line in joined.splitlines())
    texts = [after or before for before, _, after in lines]
    return [shlex.split(text) for text in texts if text.startswith(("ludus ", "python ", "pip ", "kubectl "))]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("words", ALL)
def test_every_example_of_a_help_text_can_be_copied_from_a_terminal(words, width):
    command = ALL[words]
    context = click.Context(command, info_name=words, terminal_width=width, max_content_width=width)
    shown = command.get_help(context).partition("Options:")[0]
    assert all(len(line) <= width for line in shown.splitlines())
    examples = (example_of(paragraph) for paragraph in (command.help or "").split("\n\n"))
    wanted = [shlex.split(found[1]) for found in examples if found is not None]
    assert [each for each in copied(shown) if each in wanted] == wanted
    assert wanted or words == "ludus data"


def test_a_long_command_is_broken_before_an_option_and_never_inside_quotes():
    text = "Long: ludus collect mcqa --prompt 'a text of several words' --input FILE --output runs/first --limit 3"
    assert laid_out(text, 47) == (
        "\b\nLong:\n  ludus collect mcqa \\\n      --prompt 'a text of several words' \\\n"
        "      --input FILE --output runs/first \\\n      --limit 3"
    )
    assert laid_out("Example: ludus envs --json", 50) == "\b\nExample: ludus envs --json"
    assert laid_out("As JSON: ludus envs --json", 50) == "\b\nAs JSON:\n  ludus envs --json"
    assert laid_out("No command in this ludus text.", 50) == "No command in this ludus text."


@pytest.mark.parametrize("words", [words for words, command in ALL.items() if getattr(command, "commands", None)])
def test_the_list_of_commands_cuts_no_sentence(words):
    command = ALL[words]
    context = click.Context(command, info_name=words, terminal_width=80, max_content_width=80)
    listed = command.get_help(context).partition("Commands:\n")[2]
    assert listed
    assert "..." not in listed


@pytest.mark.parametrize("words", ALL)
def test_no_help_text_names_a_bound_of_64_bit_integers(words):
    context = click.Context(ALL[words], info_name=words)
    assert "9223372036854775807" not in ALL[words].get_help(context)
