"""The cookbook: one page per recipe, from the README of its folder in `examples/cookbook`."""

from __future__ import annotations

import os
import re
from pathlib import Path

from page_text import first_paragraph, table

RECIPES = Path(__file__).parents[2] / "examples" / "cookbook"
_RELATIVE = re.compile(r"\]\((?!https?:|#)([^)\s]+)\)")


def recipes() -> dict[str, str]:
    """The README of each recipe, by the name of its folder."""
    return {path.parent.name: path.read_text() for path in sorted(RECIPES.glob("*/README.md"))}


def cookbook_pages() -> dict[str, str]:
    """The Markdown of each recipe's page. Links are those of the README, seen from `docs/cookbook`."""
    return {name: _RELATIVE.sub(lambda found: f"]({_moved(name, found[1])})", text) for name, text in recipes().items()}


def cookbook_index() -> str:
    """A table of the recipes."""
    found = recipes()
    if not found:
        return "There are no recipes yet."
    rows = ([f"[{_title(text, name)}]({name}.md)", first_paragraph(text.partition("\n")[2])] for name, text in found.items())
    return table(["recipe", "what it shows"], rows)


def _title(text: str, name: str) -> str:
    line = text.lstrip().partition("\n")[0]
    return line.lstrip("# ") if line.startswith("#") else name


def _moved(name: str, target: str) -> str:
    """A link of the recipe's README as `docs/cookbook/NAME.md` writes it."""
    path, hash_, anchor = target.partition("#")
    inside = os.path.normpath(os.path.join("examples", "cookbook", name, path))
    return f"{os.path.relpath(inside, os.path.join('docs', 'cookbook'))}{hash_}{anchor}"
