"""Commands in other packages: they are found by their entry point, and a missing one is named with its package."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from registered import register

from ludus.cli import main


def install_commands(monkeypatch: pytest.MonkeyPatch, **targets: str) -> None:
    """Make these the only commands that other packages bring."""
    register(monkeypatch, "ludus.commands", **targets)


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["ludus", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code or 0


def greet(name: str) -> None:
    """Say hello.

    Example: ludus greet Ada
    """
    print(f"hello {name}")


@pytest.fixture
def greeting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "of_a_package", SimpleNamespace(greet=greet))
    install_commands(monkeypatch, greet="of_a_package:greet", sulk="no_such_package:sulk", collect="of_a_package:greet")


@pytest.mark.usefixtures("greeting")
def test_a_command_of_another_package_runs_by_its_name(monkeypatch, capsys):
    assert run(monkeypatch, "greet", "Ada") == 0
    assert capsys.readouterr().out == "hello Ada\n"


@pytest.mark.usefixtures("greeting")
def test_the_help_lists_it_and_a_package_that_cannot_be_loaded_hides_no_other_command(monkeypatch, capsys):
    assert run(monkeypatch, "--help") == 0
    out, err = capsys.readouterr()
    assert "Say hello." in out
    assert "  collect  " in out
    assert "Collect verified rollouts." in out
    assert err.startswith("ludus sulk cannot be loaded from another-package: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "what", "package"),
    [
        ("bench mcqa --in-flight 8", "ludus bench (measures rollouts a second and what limits them)", "ludus-bench"),
        ("browse runs", "ludus browse (shows runs in the terminal)", "ludus-browser"),
        ("data stats x", "ludus data (converts, checks, prepares and exports datasets)", "ludus-data"),
        ("qualify mcqa", "ludus qualify (tests whether a verifier can be trusted)", "ludus-qualify"),
        ("recall runs", "ludus recall (finds the rewards that a mended verifier would change)", "ludus-qualify"),
        ("serve sandbox --port 0", "ludus serve sandbox", "ludus-sandboxes"),
        ("show runs --browse", "ludus browse (shows runs in the terminal)", "ludus-browser"),
    ],
)
def test_a_missing_command_of_ours_is_one_line_with_what_it_does_and_the_pip_command(
    monkeypatch, capsys, words, what, package
):
    install_commands(monkeypatch)
    monkeypatch.setattr("ludus.errors.DISTRIBUTION", "a copy that pip did not install")
    assert run(monkeypatch, *words.split()) == 2
    wanted = f"error: {what} is in another package. Install it with: pip install {package}\n"
    assert capsys.readouterr().err == wanted
