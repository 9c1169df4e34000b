"""The core loads with nothing but its declared dependencies: what an extra brings is never needed by chance."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]

#: Modules that nothing loads unless their extra is wanted.
OF_EXTRAS = (
    "ludus.graders.math_",  # math
    "ludus.models.aiohttp_client",  # aiohttp
)

LOAD_ALL = """
import importlib, pkgutil, re, sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires


def normal(name):
    return re.sub("[-_.]+", "-", re.match(r"[\\w.-]+", name)[0]).lower()


known, todo = set(), sys.argv[1:]
while todo:
    name = normal(todo.pop())
    if name not in known:
        known.add(name)
        try:
            todo += [line for line in requires(name) or () if "extra ==" not in line]
        except PackageNotFoundError:  # for another system
            pass
owners = packages_distributions()


class OnlyTheCore:
    def find_spec(self, name, path=None, target=None):
        owner = owners.get(name.partition(".")[0])
        if owner and known.isdisjoint(map(normal, owner)):
            raise ModuleNotFoundError(name, name=name)


sys.meta_path.insert(0, OnlyTheCore())
import ludus
from ludus.errors import MissingExtra

for module in pkgutil.walk_packages(ludus.__path__, "ludus.", onerror=lambda name: None):
    if module.name.startswith(("ludus.environments.", "ludus.cookbook.")) or module.name == "ludus.__main__":
        continue
    try:
        importlib.import_module(module.name)
    except MissingExtra:
        pass
    except ModuleNotFoundError as error:
        print(module.name, error.name)
"""


@pytest.mark.slow
def test_every_module_loads_without_any_extra_or_names_the_extra_that_it_needs():
    wanted = [*PROJECT["dependencies"], PROJECT["name"], "pytest"]  # ludus.testing is for tests
    command = [sys.executable, "-c", LOAD_ALL, *wanted]
    loaded = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert loaded.returncode == 0, loaded.stderr[-2000:]
    assert [line for line in loaded.stdout.splitlines() if not line.startswith(OF_EXTRAS)] == []
    assert "ludus.models.aiohttp_client aiohttp" in loaded.stdout, "the check finds what is missing"
