"""What is installed in a virtual environment: the licence of each package, and a CycloneDX list of them.

This file also runs inside the environment that it describes (`python inventory.py`), and therefore imports nothing but
the standard library.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from importlib.metadata import Distribution, distributions
from typing import Any

Package = dict[str, Any]

#: Words of licence classifiers and of free texts, and the identifiers of SPDX that they mean.
_SPDX = [
    (r"apache", "Apache-2.0"),
    (r"\bmit\b|expat", "MIT"),
    (r"bsd.*2|2-clause", "BSD-2-Clause"),
    (r"bsd", "BSD-3-Clause"),
    (r"mozilla|mpl", "MPL-2.0"),
    (r"python software foundation|\bpsf", "PSF-2.0"),
    (r"\bisc\b", "ISC"),
    (r"unlicense", "Unlicense"),
    (r"zlib", "Zlib"),
    (r"lesser|lgpl", "LGPL-3.0-or-later"),
    (r"gpl", "GPL-3.0-or-later"),
]

#: Licences of which nobody needs to think twice.
_PERMISSIVE = set(
    "0BSD Apache-2.0 BSD-2-Clause BSD-3-Clause BSL-1.0 CC0-1.0 HPND ISC MIT MIT-0 MIT-CMU NCSA PSF-2.0 Python-2.0"
    " Unlicense Zlib".split()
)


def packages() -> list[Package]:
    """The installed packages by name: version, licence, summary, and the names of what each requires."""
    found = {_name(each.metadata["Name"]): each for each in distributions() if each.metadata["Name"]}
    return [_package(name, found[name], set(found)) for name in sorted(found)]


def with_extras(core: list[Package], extras: dict[str, list[Package]]) -> list[Package]:
    """The packages of the core, and those that only extras bring, with the names of these extras; without installers.

    A package that extras bring in several versions is listed in each.
    """
    found = {(each["name"], each["version"]): each for each in core}
    for extra, packages in extras.items():
        for package in packages:
            known = found.setdefault((package["name"], package["version"]), {**package, "extras": []})
            if "extras" in known:
                known["extras"].append(extra)
    return [each for (name, _), each in sorted(found.items()) if name not in ("pip", "setuptools", "wheel")]


def licence_table(found: list[Package]) -> str:
    """The licences as Markdown: how many packages have each, and one line for each package."""
    counts = Counter(each["licence"] or "not declared" for each in found)
    head = ["# Licences of the dependencies", "", f"{len(found)} packages. What to look at comes first.", ""]
    look = [f"- {each['name']} {each['version']}: {each['licence'] or 'not declared'}" for each in to_look_at(found)]
    common = ["", "| licence | packages |", "| --- | --- |"]
    common += [f"| {licence} | {count} |" for licence, count in counts.most_common()]
    rows = ["", "| package | version | licence | needed by |", "| --- | --- | --- | --- |"]
    rows += [
        f"| {each['name']} | {each['version']} | {each['licence'] or 'not declared'} | {_needed_by(each)} |"
        for each in found
    ]
    return "\n".join([*head, *(look or ["- nothing"]), *common, *rows, ""])


def to_look_at(found: list[Package]) -> list[Package]:
    """Packages that a person should look at: without a licence, with a copyleft one, or with words of its own."""
    return [each for each in found if not _permissive(each["licence"])]


def _permissive(licence: str) -> bool:
    """Whether a licence asks for no more than its own text, or leaves the choice of one that does."""
    choices = [licence] if "(" in licence else licence.split(" OR ")
    named = [re.split(r" (?:AND|OR) ", re.sub(r"[()]| WITH \S+", "", each)) for each in choices]
    return any(set(names) <= _PERMISSIVE for names in named)


def _needed_by(each: Package) -> str:
    return ", ".join(each["extras"]) if "extras" in each else "core"


def cyclonedx(found: list[Package], name: str, version: str, when: str) -> dict[str, Any]:
    """The packages as a bill of materials in the CycloneDX format 1.5. `when` is the time of the release."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": when,
            "component": {"type": "application", "name": name, "version": version, "bom-ref": _purl(name, version)},
        },
        "components": [_component(each) for each in found if each["name"] != name],
        "dependencies": [
            {"ref": _purl(each["name"], each["version"]), "dependsOn": _references(each, found)} for each in found
        ],
    }


def _package(name: str, of: Distribution, known: set[str]) -> Package:
    required = {_name(match[0]) for line in of.requires or () if (match := re.match(r"[\w.-]+", line))}
    return {
        "name": name,
        "version": of.version,
        "licence": licence_of(of),
        "summary": _field(of, "Summary"),
        "requires": sorted(required & known),
    }


def licence_of(of: Distribution) -> str:
    """The licence that a package declares: its expression, its classifiers, or its short text; empty without any."""
    expression = _field(of, "License-Expression")
    if expression:
        return expression
    classifiers = [each for each in of.metadata.get_all("Classifier") or () if each.startswith("License ::")]
    named = [each.rsplit("::", 1)[1].strip() for each in classifiers if not each.endswith("OSI Approved")]
    text = _field(of, "License").strip()
    given = named or ([text.splitlines()[0][:80]] if text and text != "UNKNOWN" else [])
    return " AND ".join(dict.fromkeys(_identifier(each) for each in given))


def _field(of: Distribution, name: str) -> str:
    """A field of the metadata; empty if the package does not have it."""
    return str((of.metadata.get_all(name) or [""])[0])


def _identifier(words: str) -> str:
    return next((spdx for pattern, spdx in _SPDX if re.search(pattern, words.lower())), words)


def _component(each: Package) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": _purl(each["name"], each["version"]),
        "name": each["name"],
        "version": each["version"],
        "purl": _purl(each["name"], each["version"]),
    }
    if "extras" in each:
        component["scope"] = "optional"
    if each["summary"]:
        component["description"] = each["summary"]
    if each["licence"]:
        component["licenses"] = [{"expression": each["licence"]}] if _is_spdx(each["licence"]) else [
            {"license": {"name": each["licence"]}}
        ]  # fmt: skip
    return component


def _is_spdx(licence: str) -> bool:
    return all(re.fullmatch(r"\(?[\w.+-]+\)?", word) for word in re.split(r" (?:AND|OR|WITH) ", licence))


def _references(each: Package, found: list[Package]) -> list[str]:
    versions = {one["name"]: one["version"] for one in found}
    return [_purl(name, versions[name]) for name in each["requires"] if name in versions]


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version}"


def _name(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    json.dump(packages(), sys.stdout)
