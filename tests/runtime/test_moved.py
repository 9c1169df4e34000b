"""Modules that became packages of their own keep the names under which programs import them."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from ludus.runtime.moved import MOVED, moved

PACKAGES = Path(__file__).parents[2] / "packages"


def test_a_moved_module_is_the_same_module_under_both_names():
    old = importlib.import_module("ludus.data.export.pairs")
    new = importlib.import_module("ludus_data.export.pairs")
    assert old is new
    assert importlib.import_module("ludus.data.export").pairs is new
    assert new.__name__ == new.__spec__.name == "ludus_data.export.pairs"


def test_every_moved_name_leads_to_a_package_of_ours():
    for old in MOVED:
        package, name = moved(f"ludus.{old}")
        assert importlib.util.find_spec(name) is not None, name
        assert (PACKAGES / package / "pyproject.toml").exists()


def test_a_module_that_is_nowhere_is_not_found():
    with pytest.raises(ModuleNotFoundError, match="ludus.data.no_such_module"):
        importlib.import_module("ludus.data.no_such_module")
    assert moved("ludus.database") == ("", "")


def test_the_error_of_a_missing_package_names_the_command_that_installs_it():
    program = """if True:
        import sys
        import ludus
        sys.path[:] = [place for place in sys.path if "packages" not in place.split("/")]  # as if none were installed
        try:
            import ludus.data.convert
        except ludus.UserError as error:
            print(error)
    """
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.startswith("ludus.data.convert (now ludus_data.convert) is in another package. Install it with: pip")
    assert said.count("\n") == 1
