"""Reads the JSON, YAML, XML, TOML or CSV that a model wrote into plain values.

A model's text may be hostile. Every reader accepts any string and raises only `FormatError`. No reader builds Python
objects, opens files or expands entities. Fixed limits stop texts whose cost is out of proportion to their length (YAML
aliases of aliases, a TOML key of a thousand parts, a CSV of missing cells). The whole text must be the document: no
reader looks into a code fence or skips prose.
"""

from __future__ import annotations

import csv
import io
import json
import re
import tomllib
from collections.abc import Callable
from typing import Any, Literal
from xml.parsers import expat

import yaml

Format = Literal["json", "yaml", "xml", "toml", "csv"]

MAX_CHARACTERS = 500_000
MAX_DEPTH = 250
MAX_KEY_PARTS = 50
MAX_CELL = 131_072

#: The most values for each character of a text. Only YAML aliases and missing CSV cells make more than one.
MAX_GROWTH = 10

#: A text that libyaml refuses is parsed again with PyYAML's slow parser, up to this many characters.
_MAX_SLOW_YAML = 20_000
_YAML_PREFIX = re.compile(rf"^[ \-?:]{{{MAX_DEPTH},}}", re.MULTILINE)
_KEY_PART = r"(?:[A-Za-z0-9_-]++|\"[^\"\n]*+\"|'[^'\n]*+')"
_LONG_KEY = re.compile(rf"(?<![\w.-]){_KEY_PART}(?:[ \t]*+\.[ \t]*+{_KEY_PART}){{{MAX_KEY_PARTS}}}")


class FormatError(ValueError):
    """The text is not in the format. The message holds the class and the message of the parser's error."""


def parse(text: str, format: Format) -> Any:
    """The value of a text in the format.

    parse("<r><i>1</i><i>2</i></r>", "xml")   # {'r': {'i': ['1', '2']}}
    """
    if len(text) > MAX_CHARACTERS:
        raise FormatError(f"TooLong: the text has {len(text)} characters, more than {MAX_CHARACTERS}")
    try:
        return _READERS[format](text)
    except FormatError:
        raise
    except Exception as error:
        raise FormatError(described(error)) from error


def described(error: Exception) -> str:
    """An error's class and message, the message cut to 200 characters."""
    return f"{type(error).__name__}: {str(error)[:200]}"


def _yaml(text: str) -> Any:
    """The value of a single YAML document of plain values."""
    flat = text.count("[") + text.count("{") < MAX_DEPTH and not _YAML_PREFIX.search(text)
    if not flat:
        _check_yaml_depth(text)  # libyaml's composer recurses without a limit, and would crash the process
    value = _load_yaml(text)
    if "*" in text:
        _check_growth(value, text)
    return value


def _load_yaml(text: str) -> Any:
    fast: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(text, Loader=fast)
    except yaml.YAMLError:
        if fast is yaml.SafeLoader or len(text) > _MAX_SLOW_YAML:
            raise
    return yaml.load(text, Loader=yaml.SafeLoader)  # accepts a little more than libyaml, with better errors


def _check_yaml_depth(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise FormatError(f"TooDeep: more than {MAX_DEPTH} levels")


def _check_growth(value: Any, text: str) -> None:
    """Refuse a value that aliases make too large, or endless, to walk through."""
    stack, seen = [(value, 0)], 0
    while stack:
        node, depth = stack.pop()
        children = [*node, *node.values()] if isinstance(node, dict) else node
        if not isinstance(children, (list, tuple, set)):
            continue
        seen += len(children)
        if seen > _max_values(text) or depth > MAX_DEPTH:
            raise FormatError("TooLarge: the aliases make it too large")
        stack += [(child, depth + 1) for child in children]


def _max_values(text: str) -> int:
    return MAX_GROWTH * max(len(text), 100)


class _XmlBuilder:
    """Builds nested mappings from the events of an XML parser.

    An element becomes its text, or a mapping of its attributes (`@name`), its children and its text (`#text`). Children
    of the same name become a list. An empty element becomes None.
    """

    def __init__(self) -> None:
        self.open: list[tuple[dict[str, Any], list[str]]] = [({}, [])]

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self.open) > MAX_DEPTH:
            raise FormatError(f"TooDeep: more than {MAX_DEPTH} levels")
        self.open.append(({f"@{key}": value for key, value in attributes.items()}, []))

    def text(self, data: str) -> None:
        self.open[-1][1].append(data)

    def end(self, name: str) -> None:
        mapping, texts = self.open.pop()
        text = "".join(texts).strip() or None
        if mapping and text:
            _add(mapping, "#text", text)
        _add(self.open[-1][0], name, mapping or text)


def _add(mapping: dict[str, Any], key: str, value: Any) -> None:
    if key not in mapping:
        mapping[key] = value
    elif isinstance(mapping[key], list):
        mapping[key].append(value)
    else:
        mapping[key] = [mapping[key], value]


def _xml(text: str) -> Any:
    """The value of an XML document. A document that declares entities is refused."""
    builder, parser = _XmlBuilder(), expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.text
    parser.EntityDeclHandler = _refuse_entities
    parser.Parse(text.encode(), True)
    return builder.open[0][0]


def _refuse_entities(*declaration: Any) -> None:
    raise ValueError("entities are disabled")


def _toml(text: str) -> Any:
    if _LONG_KEY.search(text):  # tomllib takes quadratic time in the number of a key's parts
        raise FormatError(f"TooDeep: a key of more than {MAX_KEY_PARTS} parts")
    return tomllib.loads(text)


def _bounded(cells: list[str]) -> list[str]:
    """Refuse a cell that is too long. Python's own limit is global, and other code may raise it."""
    if any(len(cell) > MAX_CELL for cell in cells):
        raise csv.Error(f"field larger than field limit ({MAX_CELL})")
    return cells


def _csv(text: str) -> list[dict[Any, Any]]:
    """Records keyed by the first line's names. A missing cell is None. Surplus cells are a list under the key None."""
    lines = map(_bounded, csv.reader(io.StringIO(text)))
    header = next(lines, [])
    records: list[dict[Any, Any]] = []
    for cells in lines:
        if not cells:
            continue
        record: dict[Any, Any] = dict(zip(header, cells, strict=False))
        if len(cells) > len(header):
            record[None] = cells[len(header) :]
        for name in header[len(cells) :]:
            record[name] = None
        records.append(record)
        if len(records) * len(header) > _max_values(text):
            raise FormatError("TooLarge: most cells of the table are missing")
    return records


_READERS: dict[str, Callable[[str], Any]] = {"json": json.loads, "yaml": _yaml, "xml": _xml, "toml": _toml, "csv": _csv}
