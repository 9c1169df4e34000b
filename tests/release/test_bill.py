"""What a release lists of its dependencies: names, versions, licences, and who requires whom."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import bill
import inventory
import licences
import pytest

_BSD = "Redistribution and use in source and\nbinary forms, with or without modification, are permitted."
_APACHE = "Licensed under the Apache License, Version 2.0"
_ENDORSE = "Neither the name may be used to endorse or promote products."


def test_the_inventory_has_every_dependency_with_its_licence():
    done = subprocess.run([sys.executable, inventory.__file__], capture_output=True, text=True, check=True)
    found = {each["name"]: each for each in bill.with_extras(json.loads(done.stdout), {})}
    assert found["pydantic"]["licence"] == "MIT"
    assert found["aiohttp"]["licence"].startswith("Apache-2.0")
    assert ("pydantic-core", found["pydantic-core"]["version"]) in found["pydantic"]["requires"]


def test_the_bill_of_materials_refers_only_to_what_it_lists():
    core = [_package("ludus-gym", "1.0", ["a 2"]), _package("a", "2", [], "MIT"), _package("pip", "9", [])]
    x = [_package("ludus-gym", "1.0", ["a 2", "b-c 3+cpu"]), _package("a", "2", [], "MIT")]
    x.append(_package("b-c", "3+cpu", ["a 2", "pip 9"], "A licence of its own"))
    found = bill.with_extras(
        core, {"x": x, "y": [_package("a", "1", [], "MIT"), _package("d", "1", ["a 1"], "MIT"), x[2]]}
    )
    listing = bill.cyclonedx(found, "ludus-gym", "1.0", "2026-01-01T00:00:00Z")
    assert (listing["bomFormat"], listing["specVersion"]) == ("CycloneDX", "1.5")
    assert listing["metadata"]["component"]["purl"] == "pkg:pypi/ludus-gym@1.0"
    listed = {each["bom-ref"]: each for each in listing["components"]}
    assert set(listed) == {"pkg:pypi/a@1", "pkg:pypi/a@2", "pkg:pypi/b-c@3%2Bcpu", "pkg:pypi/d@1"}
    assert listed["pkg:pypi/a@2"]["licenses"] == [{"expression": "MIT"}]
    assert listed["pkg:pypi/b-c@3%2Bcpu"]["licenses"] == [{"license": {"name": "A licence of its own"}}]
    assert [each.get("scope") for each in listed.values()] == ["optional", None, "optional", "optional"]
    required = {each["ref"]: each["dependsOn"] for each in listing["dependencies"]}
    assert required == {
        "pkg:pypi/a@1": [],
        "pkg:pypi/a@2": [],
        "pkg:pypi/b-c@3%2Bcpu": ["pkg:pypi/a@2"],
        "pkg:pypi/d@1": ["pkg:pypi/a@1"],
        "pkg:pypi/ludus-gym@1.0": ["pkg:pypi/a@2", "pkg:pypi/b-c@3%2Bcpu"],
    }
    table = bill.licence_table(found)
    assert re.search(r"^\| a \| 2 \| MIT \| core \|$", table, re.MULTILINE)
    assert re.search(r"^\| b-c \| 3\+cpu \| A licence of its own \| x, y \|$", table, re.MULTILINE)


@pytest.mark.parametrize(
    ("declared", "licence"),
    [
        ({"expression": "mit or apache-2.0"}, "MIT OR Apache-2.0"),
        ({"text": "MPL-2.0 AND MIT"}, "MPL-2.0 AND MIT"),
        ({"text": "MIT OR Apache-2.0", "classifiers": ["MIT License", "Apache Software License"]}, "MIT OR Apache-2.0"),
        (
            {"text": "MIT", "classifiers": ["Apache Software License"], "files": ["Apache License, Version 2.0"]},
            "Apache-2.0",
        ),
        ({"classifiers": ["OSI Approved", "MIT License"]}, "MIT"),
        ({"classifiers": ["GNU Lesser General Public License v2 or later (LGPLv2+)"]}, "LGPL-2.0-or-later"),
        ({"classifiers": ["BSD License"], "files": [_BSD]}, "BSD-2-Clause"),
        ({"classifiers": ["BSD License"], "files": [_BSD + _ENDORSE]}, "BSD-3-Clause"),
        ({"classifiers": ["BSD License"], "text": "The BSD 2-Clause License"}, "BSD-2-Clause"),
        ({"classifiers": ["BSD License"]}, "BSD License"),
        ({"classifiers": ["Public Domain", "MIT License"], "files": [_BSD]}, "Public Domain AND MIT"),
        ({"text": "Apache License 2.0"}, "Apache-2.0"),
        ({"text": "MIT or Apache, as you like"}, "MIT or Apache, as you like"),
        ({"text": "GPL"}, "GPL"),
        ({"text": "UNKNOWN", "files": [_BSD]}, "BSD-2-Clause"),
        ({"files": ["Apache Licnse\n   Version 2.0, January 2004"]}, "Apache-2.0"),
        ({"files": ["Our own words."]}, ""),
        ({}, ""),
    ],
)
def test_a_licence_is_what_the_clearest_place_of_a_package_says(declared, licence):
    assert (
        licences.licence_of("a", {"expression": "", "classifiers": [], "text": "", "files": [], **declared}) == licence
    )


@pytest.mark.parametrize(
    ("licence", "needs_a_look"),
    [
        ("MIT", False),
        ("Apache-2.0 AND MIT", False),
        ("GPL-2.0-only OR MIT", False),
        ("(MIT OR Apache-2.0) AND BSD-3-Clause", False),
        ("Apache-2.0 WITH LLVM-exception", False),
        ("(MIT OR GPL-2.0-only) AND GPL-2.0-only", True),
        ("MIT AND GPL-3.0-or-later", True),
        ("MPL-2.0", True),
        ("A licence of its own", True),
        ("", True),
    ],
)
def test_licences_that_are_not_permissive_are_named_first(licence, needs_a_look):
    found = bill.with_extras([_package("a", "1", [], licence)], {})
    assert bill.to_look_at(found) == (found if needs_a_look else [])
    assert (f"- a 1: {licence or 'not declared'}\n" in bill.licence_table(found)) == needs_a_look


def _package(name: str, version: str, requires: list[str], licence: str = "") -> inventory.Package:
    """A package as the inventory describes it; `requires` has names with versions."""
    declared = {"expression": licence, "classifiers": [], "text": "", "files": []}
    pairs = [each.split() for each in requires]
    return {"name": name, "version": version, "declared": declared, "summary": "", "requires": pairs}
