"""An invalid command line gives one line that names the error and the help to read."""

from __future__ import annotations

import sys

import pytest

from ludus.cli import main


def run(monkeypatch: pytest.MonkeyPatch, words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["ludus", *words.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code or 0


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("colect mcqa", "error: No such command 'colect'. Did you mean 'collect'? See ludus --help"),
        ("show", "error: Missing argument 'FILE'. See ludus show --help"),
        ("--loud", "error: No such option: --loud. See ludus --help"),
        ("collect mcqa --set", "error: Option '--set' requires an argument. See ludus collect --help"),
        ("chat mcqa extra", "error: Got unexpected extra argument"),
        ("collect mcqa --repeats 0", "error: Invalid value for '--repeats' / '-n': "),
        ("collect mcqa --repeats 99999999999999999999999", "error: Invalid value for '--repeats' / '-n': "),
        ("collect mcqa --max-attempts 99999999999999999999999", "error: Invalid value for '--max-attempts': "),
        ("collect mcqa --limit 99999999999999999999999", "error: Invalid value for '--limit': "),
        ("collect mcqa --seed 99999999999999999999999", "error: Invalid value for '--seed': "),
        ("qualify mcqa --seed -99999999999999999999999", "error: Invalid value for '--seed': "),
        ("chat mcqa --seed 99999999999999999999999", "error: Invalid value for '--seed': "),
        ("verify run --concurrency 99999999999999999999999", "error: Invalid value for '--concurrency' / '-c': "),
    ],
)
def test_an_invalid_command_line_is_one_line_that_points_to_help(monkeypatch, capsys, words, error):
    assert run(monkeypatch, words) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(error)
    assert err.endswith(" --help\n")


@pytest.mark.parametrize("words", ["", "--help", "collect -h"])
def test_help_exits_with_0(monkeypatch, capsys, words):
    assert run(monkeypatch, words) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Usage: ludus ")
    assert err == ""
