"""The packages that the wheel and its extras bring: a table of their licences, and a CycloneDX list of them."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Any
from urllib.parse import quote

from inventory import Package
from licences import is_spdx, licence_of, permissive

#: What every virtual environment has.
_INSTALLERS = ("pip", "setuptools", "wheel")


def with_extras(core: list[Package], extras: dict[str, list[Package]]) -> list[Package]:
    """The packages of the core, and those that only extras bring, with the names of these extras; without installers.

    A package that extras bring in several versions is listed in each. What a package requires is the union of what it
    found in each environment: `ludus-gym` requires the packages of all extras.
    """
    found: dict[tuple[str, str], Package] = {}
    for extra, packages in {"": core, **extras}.items():
        for package in packages:
            known = found.setdefault(
                (package["name"], package["version"]),
                {**package, "licence": licence_of(package["name"], package["declared"]), "extras": [], "requires": []},
            )
            known["extras"].append(extra)
            known["requires"] += [tuple(each) for each in package["requires"] if tuple(each) not in known["requires"]]
    return [each for (name, _), each in sorted(found.items()) if name not in _INSTALLERS]


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
    return [each for each in found if not permissive(each["licence"])]


def cyclonedx(found: list[Package], name: str, version: str, when: str) -> dict[str, Any]:
    """The packages as a bill of materials in the CycloneDX format 1.5. `when` is the time of the release."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{_purl(name, version)} {when}')}",
        "version": 1,
        "metadata": {
            "timestamp": when,
            "component": next({**_component(each), "type": "application"} for each in found if each["name"] == name),
        },
        "components": [_component(each) for each in found if each["name"] != name],
        "dependencies": [
            {"ref": _purl(each["name"], each["version"]), "dependsOn": _references(each, found)} for each in found
        ],
    }


def _needed_by(each: Package) -> str:
    return "core" if "" in each["extras"] else ", ".join(each["extras"])


def _component(each: Package) -> dict[str, Any]:
    purl = _purl(each["name"], each["version"])
    component = {"type": "library", "bom-ref": purl, "name": each["name"], "version": each["version"], "purl": purl}
    if "" not in each["extras"]:
        component["scope"] = "optional"
    if each["summary"]:
        component["description"] = each["summary"]
    if each["licence"]:
        spdx = is_spdx(each["licence"])
        component["licenses"] = [{"expression": each["licence"]} if spdx else {"license": {"name": each["licence"]}}]
    return component


def _references(each: Package, found: list[Package]) -> list[str]:
    listed = {(one["name"], one["version"]) for one in found}
    return [_purl(*required) for required in sorted(each["requires"]) if required in listed]


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{quote(version, safe='')}"
