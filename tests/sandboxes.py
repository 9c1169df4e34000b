"""Sandboxes for tests: which providers work here, and why the others do not."""

from __future__ import annotations

import pytest

from ludus.sandbox.choice import survey


def needs(name: str) -> pytest.MarkDecorator:
    """Skip a test where a provider does not work, with the reason and the command that installs it."""
    found = next((each for each in survey() if each.name == name), None)
    problem = found.problem if found is not None else f"there is no provider {name}"
    install = f" ({found.install})" if found is not None and found.install else ""
    return pytest.mark.skipif(problem is not None, reason=f"{name}: {problem}{install}")
