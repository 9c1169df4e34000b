"""The built page that the wheel carries: made of the sources beside it, small, and careful."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from pathlib import Path

import ludus

VIEW = Path(ludus.__file__).parent / "view"
WEB, STATIC = VIEW / "web", VIEW / "static"
FILES = ("index.html", "package.json", "package-lock.json", "sources.js", "tsconfig.json", "vite.config.ts")


def test_the_built_page_is_made_of_these_sources():
    inside = [path.relative_to(WEB).as_posix() for part in ("src", "public") for path in (WEB / part).rglob("*.*")]
    lines = (f"{hashlib.sha256((WEB / name).read_bytes()).hexdigest()}  {name}\n" for name in sorted([*FILES, *inside]))
    digest = hashlib.sha256("".join(lines).encode()).hexdigest()
    assert (STATIC / "sources.txt").read_text().strip() == digest, "the sources changed: run make web"


def test_the_page_weighs_less_than_150_kb_compressed():
    assert sum(len(gzip.compress(path.read_bytes())) for path in STATIC.iterdir()) < 150_000


def test_the_page_makes_markup_of_no_text():
    for path in WEB.joinpath("src").iterdir():
        text = path.read_text()
        found = re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc", text)
        assert not found, path
    page = (STATIC / "index.html").read_text()
    assert "<script>" not in page
    assert "http" not in page


def test_the_lock_file_names_no_place_to_download_from():
    lock = (WEB / "package-lock.json").read_text()
    assert '"resolved"' not in lock
    assert '"integrity"' in lock


def test_the_lock_file_holds_the_packages_of_every_platform():
    packages = json.loads((WEB / "package-lock.json").read_text())["packages"]
    optional = {name for package in packages.values() for name in package.get("optionalDependencies", ())}
    assert optional
    held = {path.rpartition("node_modules/")[2] for path in packages}
    assert optional - held == set(), "npm ci refuses such a lock file: pin a release whose packages are all there"
