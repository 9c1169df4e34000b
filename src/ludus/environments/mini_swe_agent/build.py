"""Makes `data/example.jsonl` from the repositories in `data/repositories`, one text file each.

    python -m ludus.environments.mini_swe_agent.build

A file has sections. Each begins with a line `@@ KIND PATH`:

    @@ issue                what the model is told
    @@ file PATH            a file of the repository, with the bug
    @@ fixed PATH           the same file without the bug
    @@ hidden PATH          a file of hidden tests; a test whose name begins with `test_fixed_` fails before the fix
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

from ludus.environments.mini_swe_agent.prompt import prompt
from ludus.graders.repository import FOLDER, make_patch

DATA = Path(__file__).parent / "data"
_HEADING = re.compile(r"^@@ (issue|file|fixed|hidden)(?: (\S+))?\n", re.MULTILINE)


def rows() -> list[dict[str, Any]]:
    """All rows, in the order of their names."""
    return [row(path) for path in sorted((DATA / "repositories").glob("*.txt"))]


def row(path: Path) -> dict[str, Any]:
    """The row of one repository."""
    parts = _HEADING.split(path.read_text(encoding="utf-8"))[1:]
    sections: dict[str, dict[str, str]] = {"issue": {}, "file": {}, "fixed": {}, "hidden": {}}
    for kind, name, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        sections[kind][name or ""] = text.strip("\n") + "\n" if text.strip() else ""
    files, hidden = _bytes(sections["file"]), _bytes(sections["hidden"])
    tests = [name for place, text in sections["hidden"].items() for name in _tests(place, text)]
    problem = sections["issue"][""].strip()
    return {
        "instance_id": f"ludus__{path.stem}",
        "repo": f"ludus/{path.stem}",
        "problem_statement": problem,
        "files": sections["file"],
        "patch": make_patch(files, {**files, **_bytes(sections["fixed"])}),
        "test_patch": make_patch(files, {**files, **hidden}),
        "FAIL_TO_PASS": [name for name in tests if "::test_fixed_" in name],
        "PASS_TO_PASS": [name for name in tests if "::test_fixed_" not in name],
        "hide_expected": True,
        "apart": True,
        "responses_create_params": {"input": prompt(problem, f"~/{FOLDER}")},
    }


def _bytes(files: dict[str, str]) -> dict[str, bytes]:
    return {path: text.encode() for path, text in files.items()}


def _tests(path: str, text: str) -> list[str]:
    names = (node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef))
    return [f"{path}::{name}" for name in names if name.startswith("test_")]


def written() -> str:
    """The text of `data/example.jsonl`."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows())


if __name__ == "__main__":
    (DATA / "example.jsonl").write_text(written(), encoding="utf-8")
