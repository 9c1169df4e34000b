"""A task that cannot be made: one line with the place and the remedy."""

from __future__ import annotations

import pytest
from ludus_inspect.problems import problem
from ludus_inspect.settings import InspectConfig, InspectTask

CONFIG = InspectConfig(task=InspectTask(text="some_evals/sums"), python="/venv/bin/python")


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (
            {"kind": "ModuleNotFoundError", "missing": "inspect_ai"},
            "inspect-ai is not installed. Install it with: /venv/bin",
        ),
        (
            {"kind": "NoSuchTask", "text": "NoSuchTask: some_evals/sum some_evals/x"},
            "has no task sums. Did you mean sum?",
        ),
        ({"kind": "NoSuchTask", "text": "NoSuchTask"}, "no installed package has tasks of Inspect named some_evals"),
        (
            {"kind": "ConnectionError,OSError", "text": "ConnectionError: no route"},
            "needs the network to load its dataset",
        ),
        ({"kind": "ValueError", "text": "ValueError: Couldn't reach the Hub"}, "needs the network to load its dataset"),
        ({"kind": "TypeError", "text": "TypeError: unexpected keyword argument 'n'"}, "Correct --set resources.args"),
        ({"kind": "ImportError", "text": "ImportError: install x"}, "Install what it names: /venv/bin/python -m pip"),
        ({"kind": "SyntaxError", "text": "SyntaxError: bad", "place": "/a/b.py:3"}, "/a/b.py:3: SyntaxError: bad"),
    ],
)
def test_one_line(told: dict[str, str], words: str) -> None:
    line = str(problem(CONFIG, {"text": "", "place": "", "missing": "", **told}))
    assert words in line
    assert "\n" not in line
