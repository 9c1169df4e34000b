"""Turns rows of repository tasks into rows of this environment.

    python -m ludus.environments.swerl_gen.build ../mini_swe_agent/data/example.jsonl > data/example.jsonl

Every row becomes a repair. The model is shown the files that the right patch touches. With `--reproduce N`, the first N
rows become tasks to reproduce the bug too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ludus.graders.repository.patches import paths_of

_FORM = """\
<solution>
```python
### path/of/the/file.py
<<<<<<< SEARCH
lines of the file, exactly as they are
=======
lines that replace them
>>>>>>> REPLACE
```
</solution>"""
_REPAIR = """\
A repository has this problem:

{problem}

These files of it matter:

{files}

Repair the problem. Answer with one or more search/replace blocks between <solution> and </solution>, in this form. \
The lines to find must stand in the file exactly as you write them, and begin at the start of a line.

{form}"""
_REPRODUCE = """\
A repository has this problem:

{problem}

These files of it matter:

{files}

Write a Python script that runs in the repository's folder and tells whether the problem is there: it ends with exit \
code 2 if it is, and with 0 if it is not. Answer with one block of Python that holds the whole script."""


def converted(rows: Iterable[dict[str, Any]], reproduce: int = 0) -> Iterator[dict[str, Any]]:
    """The rows of this environment."""
    for number, row in enumerate(rows):
        modes = ("eval", "repro-gen") if number < reproduce else ("eval",)
        yield from (_row(row, mode) for mode in modes)


def _row(row: dict[str, Any], mode: str) -> dict[str, Any]:
    shown = {path: row["files"][path] for path in sorted(paths_of(row["patch"])) if path in row["files"]}
    files = "\n\n".join(f"### {path}\n```python\n{text}```" for path, text in shown.items())
    template = _REPAIR if mode == "eval" else _REPRODUCE
    prompt = template.format(problem=row["problem_statement"], files=files, form=_FORM)
    fields = "instance_id repo problem_statement files patch test_patch".split()
    fields += ["FAIL_TO_PASS", "PASS_TO_PASS", "hide_expected", "apart"]
    return {
        "instance": {key: row[key] for key in fields if key in row},
        "metadata": {"relevant_file_contents": json.dumps(shown, ensure_ascii=False), "remove_repo_name": False},
        "mode": mode,
        "responses_create_params": {"input": [{"role": "user", "content": prompt}]},
    }


def written(source: Path, reproduce: int) -> str:
    """The rows as JSON lines."""
    rows = (json.loads(line) for line in source.read_text(encoding="utf-8").splitlines())
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in converted(rows, reproduce))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Rows of swerl_gen from rows of repository tasks.")
    parser.add_argument("source", type=Path)
    parser.add_argument("--reproduce", type=int, default=0)
    options = parser.parse_args()
    sys.stdout.write(written(options.source, options.reproduce))
