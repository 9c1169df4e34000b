"""A command is a function: what its signature says is what the command line takes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
from click.testing import CliRunner

from ludus.cli.commands import Argument, Command, CommandGroup, Exit, Option

TAKEN: list[dict[str, Any]] = []


def play(
    names: Annotated[list[str], Argument(metavar="NAME...", help="What to play.")],
    folder: Annotated[Path | None, Option(help="Where.")] = None,
    count: Annotated[int, Option("--count", "-n", min=1, max=9, help="How often.", panel="Amounts")] = 3,
    share: Annotated[float | None, Option(min=0, max=1, help="How much.")] = None,
    tag: Annotated[list[str] | None, Option(metavar="TAG", help="May repeat.")] = None,
    shuffle: Annotated[bool, Option(help="In any order.")] = True,
    json_: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """Play something.

    Example: ludus play a b --count 2
    """
    TAKEN.append(dict(locals()))


def typed(*words: str) -> Any:
    TAKEN.clear()
    return CliRunner().invoke(Command(play), list(words))


def test_what_is_not_typed_has_its_default():
    assert typed("a").exit_code == 0
    assert TAKEN == [
        {"names": ["a"], "folder": None, "count": 3, "share": None, "tag": None, "shuffle": True, "json_": False}
    ]


def test_what_is_typed_arrives_with_its_type():
    words = "a b --folder x/y -n 2 --share 0.5 --tag t --tag u --no-shuffle --json".split()
    assert typed(*words).exit_code == 0
    amounts = {"count": 2, "share": 0.5, "shuffle": False}
    [taken] = TAKEN
    assert taken == {"names": ["a", "b"], "folder": Path("x/y"), "tag": ["t", "u"], "json_": True, **amounts}


@pytest.mark.parametrize(
    "words",
    ["", "a --count 0", "a --count 10", "a --count 1.5", "a --share nan", "a --share 2", "a --json=1", "a --nojson"],
)
def test_what_does_not_fit_the_signature_is_a_usage_error(words):
    assert typed(*words.split()).exit_code == 2
    assert TAKEN == []


def test_the_help_text_shows_limits_defaults_and_headings():
    shown = typed("--help").output
    assert "play [OPTIONS] NAME...\n" in shown
    assert "NAME... <str>  What to play.  [required]\n" in shown
    assert "Amounts:\n  -n, --count <int range>  How often.  [default: 3; 1<=x<=9]\n" in shown
    assert "--shuffle / --no-shuffle  In any order.  [default: shuffle]\n" in shown
    assert "--share <float range>     How much.  [0<=x<=1]\n" in shown


def test_a_group_without_a_word_shows_its_commands_and_an_exit_code_is_passed_on():
    @CommandGroup
    def games() -> None:
        """Games."""

    @games.command
    def lose_() -> None:
        """Lose."""
        raise Exit(3)

    help_text = CliRunner().invoke(games, [])
    assert (help_text.exit_code, "  lose  Lose.\n" in help_text.output) == (0, True)
    assert CliRunner().invoke(games, ["lose"]).exit_code == 3
    wrong = CliRunner().invoke(games, ["lsoe"])
    assert (wrong.exit_code, "No such command 'lsoe'. Did you mean 'lose'?" in wrong.output) == (2, True)
