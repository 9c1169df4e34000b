"""A command line that makes no sense is one line that says so, wherever the nonsense is."""

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
    ("words", "told"),
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
def test_nonsense_is_one_line_with_where_to_read_more(monkeypatch, capsys, words, told):
    assert run(monkeypatch, words) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(told)
    assert err.endswith(" --help\n")


@pytest.mark.parametrize("words", ["", "--help", "collect -h"])
def test_help_is_no_error(monkeypatch, capsys, words):
    assert run(monkeypatch, words) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Usage: ludus ")
    assert err == ""
