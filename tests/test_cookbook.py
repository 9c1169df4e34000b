"""Every recipe of the cookbook is small, complete, qualified, and has the figures of its card in its README."""

from __future__ import annotations

import json
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from ludus_qualify.attempts import play
from ludus_qualify.card import Card
from ludus_qualify.oracle import Oracle
from ludus_qualify.run import attempts_for, qualify
from site_map import SECTIONS

from ludus import Environment
from ludus.cli.new import COOKBOOK, recipes
from ludus.runtime.running import run_to_end
from ludus.testing import needs_sandbox

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs" / "cookbook"
RECIPES = recipes()

#: Every attempt starts an MCP server there: one row is enough.
ONE_ROW = {"form_filling"}
#: Qualification of all attempts runs for a minute there: a part of them is played instead.
PROGRAMS = "unit_test_writer"


def rows_of(name: str) -> list[dict[str, Any]]:
    return list(map(json.loads, (COOKBOOK / name / "data" / "example.jsonl").read_text().splitlines()))


def loaded(name: str) -> Environment:
    if name in ONE_ROW:
        pytest.importorskip("mcp", reason="the tools of this recipe are on an MCP server: pip install -e '.[mcp]'")
    return Environment.load(COOKBOOK / name).copy()


def figures(card: Card) -> list[tuple[str, str]]:
    """The lines of a README about a card."""
    best = card.best_exploit
    assert best is not None
    return [
        ("verdict", card.verdict),
        ("rows, attempts", f"{card.rows}, {card.attempts}"),
        ("oracle", f"{card.oracle:.3f}"),
        ("best exploit", f"{best.reward:.3f}"),
        ("wrong answers accepted", f"{card.false_positive.wrong} of {card.false_positive.total}"),
        ("right answers refused", f"{card.false_negative.wrong} of {card.false_negative.total}"),
    ]


def test_there_are_twelve_recipes_and_each_has_a_page_in_the_index():
    index = (DOCS / "index.md").read_text()
    assert len(RECIPES) == 12
    assert sorted(re.findall(r"\((\w+)\.md\) \| `(\w+)`", index)) == [(name, name) for name in RECIPES]
    section = next(section for section in SECTIONS if section.folder == "cookbook")
    assert list(section.pages) == re.findall(r"\| `(\w+)` \|", index)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_complete_and_its_code_fits_on_a_screen(name: str):
    folder = COOKBOOK / name
    assert len((folder / "resources.py").read_text().splitlines()) < 60
    environment = loaded(name)
    assert environment.name == name
    assert len(list(map(environment.task, rows_of(name)))) >= 5
    assert (folder / f"test_{name}.py").is_file()
    readme = (folder / "README.md").read_text()
    assert readme.startswith(f"# {name}\n")
    cheating = readme.partition("## How a model could cheat, and why it does not pay\n\n")[2].partition("\n\n")[0]
    assert len(re.findall(r"[.:](?:\s|$)", cheating)) >= 2
    assert "Apache-2.0" in readme


def test_the_wheel_leaves_out_no_file_of_a_recipe():
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    for path in (path.relative_to(ROOT) for path in COOKBOOK.glob("*/*.*")):
        for pattern in wheel["exclude"]:  # as in a .gitignore: without a slash, a pattern is for the file's name
            assert not fnmatch(str(path) if "/" in pattern else path.name, pattern), f"{pattern} leaves out {path}"


@pytest.mark.parametrize("name", RECIPES)
def test_a_page_shows_the_code_of_its_recipe_and_not_a_copy(name: str):
    page = (DOCS / f"{name}.md").read_text()
    shown = re.findall(r"```\{(?:literalinclude|include)\} (\S+)", page)
    assert {(DOCS / path).resolve() for path in shown} >= {
        COOKBOOK / name / "resources.py",
        COOKBOOK / name / "README.md",
    }
    assert re.search(rf"```bash\nludus new \w+ --like {name}\n", page)
    assert not re.search(r"```python", page)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RECIPES if name != PROGRAMS])
def test_a_recipe_pays_right_answers_in_full_and_bad_policies_nothing(name: str):
    card = qualify(loaded(name), limit=1 if name in ONE_ROW else None, odd=0)
    assert card.not_shown == (["more than 1 row"] if name in ONE_ROW else []), card.checks
    assert card.verdict == ("not shown" if name in ONE_ROW else "trusted")
    assert card.oracle == 1.0
    assert max(exploit.reward for exploit in card.exploits) <= 0.0
    assert card.false_negative.wrong == 0
    readme = (COOKBOOK / name / "README.md").read_text()
    for line, value in figures(card):
        assert name in ONE_ROW or f"| {line} | {value} |" in readme


@pytest.mark.slow
@needs_sandbox()
def test_the_recipe_that_runs_programs_pays_right_tests_in_full_and_attacks_nothing():
    environment = loaded(PROGRAMS)
    oracle, row = Oracle.of(environment), rows_of(PROGRAMS)[0]
    attempts = attempts_for("row", row, environment.task(row), oracle, seed=0)
    own = set(oracle.exploits(environment.task(row))) | {"cheat/exits_early", "cheat/overwrites_files", "echo/answer"}
    attempts = [attempt for attempt in attempts if attempt.kind != "exploit" or attempt.name in own]
    played = run_to_end(play(environment, attempts, concurrency=4, seed=0))
    rewards = {(attempt.kind, attempt.name): played[attempt.id].reward for attempt in attempts}
    assert {name for kind, name in rewards if kind == "exploit"} == own
    for (kind, _), reward in rewards.items():
        assert reward == (1.0 if kind in ("oracle", "preserving") else 0.0), rewards
