"""JSON, YAML, XML, TOML and CSV as a model wrote them, read into plain values.

The text is hostile by nature, so every reader takes any string and raises nothing but `FormatError`. None of them
builds objects, opens files or expands entities, and what would cost more than its length (an alias of aliases, a key of
a thousand parts, a table of empty cells) is refused by a fixed limit before it is paid for. No reader looks inside a
code fence or skips prose: an answer is the document and nothing else.
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

#: How many values a text may hold for each of its characters. Only aliases and missing cells can make it more than one.
MAX_GROWTH = 10

#: Above this length the slower of YAML's two parsers is not asked for its opinion.
_SECOND_OPINION = 20_000
_YAML_PREFIX = re.compile(rf"^[ \-?:]{{{MAX_DEPTH},}}", re.MULTILINE)
_KEY_PART = r"(?:[A-Za-z0-9_-]++|\"[^\"\n]*+\"|'[^'\n]*+')"
_LONG_KEY = re.compile(rf"(?<![\w.-]){_KEY_PART}(?:[ \t]*+\.[ \t]*+{_KEY_PART}){{{MAX_KEY_PARTS}}}")


class FormatError(ValueError):
    """A text that is not in its format. The message names the parser's error and what it said."""


def parse(text: str, format: Format) -> Any:
    """The value that a text stands for.

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
    """An error in one line or more, cut to what a record should hold."""
    return f"{type(error).__name__}: {str(error)[:200]}"


def _yaml(text: str) -> Any:
    """A single YAML document of plain values. Aliases are followed as long as the whole stays small."""
    flat = text.count("[") + text.count("{") < MAX_DEPTH and not _YAML_PREFIX.search(text)
    if not flat:
        _check_yaml_depth(text)  # libyaml's composer recurses without a limit, and would take the process with it
    value = _load_yaml(text)
    if "*" in text:
        _check_growth(value, text)
    return value


def _load_yaml(text: str) -> Any:
    fast: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(text, Loader=fast)
    except yaml.YAMLError:
        if fast is yaml.SafeLoader or len(text) > _SECOND_OPINION:
            raise
    return yaml.load(text, Loader=yaml.SafeLoader)  # accepts a little more, and says better what is wrong


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
    """Refuse a value that is small in memory but large, or endless, to whoever walks it."""
    waiting, seen = [(value, 0)], 0
    while waiting:
        node, depth = waiting.pop()
        children = [*node, *node.values()] if isinstance(node, dict) else node
        if not isinstance(children, (list, tuple, set)):
            continue
        seen += len(children)
        if seen > _allowed(text) or depth > MAX_DEPTH:
            raise FormatError("TooLarge: the aliases make it too large")
        waiting += [(child, depth + 1) for child in children]


def _allowed(text: str) -> int:
    return MAX_GROWTH * max(len(text), 100)


class _Tree:
    """Builds what an XML document means as nested mappings.

    An element becomes its text, or a mapping of its attributes (`@name`), its children and its text (`#text`); children
    of one name become a list; an empty element is None.
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
    """An XML document without entities of its own: neither expanded nor fetched, but refused."""
    tree, parser = _Tree(), expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.StartElementHandler = tree.start
    parser.EndElementHandler = tree.end
    parser.CharacterDataHandler = tree.text
    parser.EntityDeclHandler = _no_entities
    parser.Parse(text.encode(), True)
    return tree.open[0][0]


def _no_entities(*declaration: Any) -> None:
    raise ValueError("entities are disabled")


def _toml(text: str) -> Any:
    if _LONG_KEY.search(text):  # the library takes the square of a key's parts
        raise FormatError(f"TooDeep: a key of more than {MAX_KEY_PARTS} parts")
    return tomllib.loads(text)


def _csv(text: str) -> list[dict[Any, Any]]:
    """Records by the names in the first line. A missing cell is None; surplus cells are a list under None."""
    lines = csv.reader(io.StringIO(text))
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
        if len(records) * len(header) > _allowed(text):
            raise FormatError("TooLarge: most cells of the table are missing")
    return records


_READERS: dict[str, Callable[[str], Any]] = {"json": json.loads, "yaml": _yaml, "xml": _xml, "toml": _toml, "csv": _csv}
