"""The card of a dataset on the hub, made from its manifest: what is in it, under which licence, and how to read it."""

from __future__ import annotations

import re
from typing import Any

import yaml

from ludus.record import Row

#: What the hub calls a licence, by what people write.
_LICENCES = {
    "apache 2.0": "apache-2.0",
    "apache-2.0": "apache-2.0",
    "mit": "mit",
    "cc by 4.0": "cc-by-4.0",
    "cc-by-4.0": "cc-by-4.0",
    "cc by-sa 4.0": "cc-by-sa-4.0",
    "cc-by-sa-4.0": "cc-by-sa-4.0",
    "cc0-1.0": "cc0-1.0",
    "gplv3": "gpl-3.0",
}


def dataset_card(repo: str, manifest: Row) -> str:
    """The text of README.md: a head that the hub reads, and a table of the files."""
    files = [entry for entry in _objects(manifest.get("files")) if isinstance(entry.get("file"), str)]
    sources = _objects(manifest.get("sources"))
    head: Row = {"license": _licence(sources), "tags": ["ludus"]}
    configs = [{"split": str(entry.get("split", "train")), "path": entry["file"]} for entry in files]
    if configs:
        head["configs"] = [{"config_name": "default", "data_files": configs}]
    lines = [f"---\n{yaml.safe_dump(head, sort_keys=False)}---", f"# {repo}", ""]
    lines += ["Tasks for reinforcement learning, one JSON object a line. Read them with Ludus:", ""]
    lines += [f"    ludus collect ENV --input hf:{repo}", ""]
    if files:
        lines += ["| file | split | rows | bytes | sha256 |", "| --- | --- | ---: | ---: | --- |"]
        lines += [f"| {' | '.join(_cell(entry.get(key)) for key in _COLUMNS)} |" for entry in files]
    if sources:
        lines += ["", "Made from:", ""]
        lines += [f"- {_cell(source.get('file'))}{_details(source)}" for source in sources]
    return "\n".join(lines) + "\n"


_COLUMNS = ("file", "split", "rows", "bytes", "sha256")


def _licence(sources: list[Row]) -> str:
    """The licence of all sources; `other` if they differ, `unknown` if one is not known."""
    names = {str(source.get("licence", "unknown")) for source in sources} or {"unknown"}
    if len(names) > 1:
        return "unknown" if "unknown" in names else "other"
    name = names.pop()
    return "unknown" if name == "unknown" else _LICENCES.get(name.lower(), "other")


def _details(source: Row) -> str:
    known = {"environment": "for ", "revision": "at ", "licence": "licence ", "sha256": "sha256 "}
    parts = [f"{words}{_cell(source[key])}" for key, words in known.items() if source.get(key)]
    return f" ({', '.join(parts)})" if parts else ""


def _objects(value: Any) -> list[Row]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _cell(value: Any) -> str:
    """A value that cannot leave its cell of a Markdown table."""
    if value is None:
        return "-"
    return re.sub(r"[|`<>\[\]\s]+", " ", f"{value:,}" if isinstance(value, int) else str(value))[:200].strip()
