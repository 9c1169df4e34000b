"""Receipts: what a reward was given for, in a few characters that travel with it.

A reward means something only together with the verifier that gave it. A receipt is `VERIFIER.TASK.RESPONSE`, three
short digests: of the verifier's source and settings (the judge is one of them), of the task's fields, and of what the
model wrote. It can be made again from a stored row, so a reward whose verifier, task or response has changed since is
known to be stale. A fourth digest, of all answers, follows where the answers were judged together.

A verifier's source is the Python files of the environment's folder, the files of the classes that its resources inherit
from, and the files of `ludus.graders` that these import. Other packages, data files and a judge's weights do not count.
"""

from __future__ import annotations

import ast
import inspect
import marshal
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import orjson

from ludus.environment import Environment
from ludus.outcome import NAMES
from ludus.record import Row
from ludus.resources import Resources
from ludus.response import Item, Items
from ludus.runtime.encoding import encode
from ludus.runtime.redaction import redacted_settings
from ludus.task import digest

#: Our package, and the room whose functions judge: a verifier may call them.
_ROOT = Path(__file__).parents[1]
_GRADERS = _ROOT / "graders"

_DIGEST_SIZE = 6


class Signer:
    """Writes the receipts of one environment. What all of them share is read once, and so is the row of a task that
    comes several times in a row, as repeats do.

    signer = Signer(environment)
    signer.sign(row, response.output)   # '1c0f62a9b3d4.77aa01bc24e5.0e1d2c3b4a59'
    """

    __slots__ = ("_prefix", "_row", "verifier")

    def __init__(self, environment: Environment) -> None:
        self.verifier = verifier_digest(environment)
        self._row: Row | None = None
        self._prefix = ""

    def sign(self, row: Row, output: list[Item], name: str | None = None) -> str:
        """The receipt for a task, given as its row, and the output that answered it.

        `name` is the task's id, where it is known: for a row that names none itself it begins with the row's digest.
        """
        if row is not self._row:
            known = name is not None and NAMES.isdisjoint(row)
            task = name if name is not None and known else _task_digest(row)
            self._row, self._prefix = row, f"{self.verifier}.{task[: 2 * _DIGEST_SIZE]}."
        written = encode(output.encoded() if isinstance(output, Items) else output)
        return self._prefix + _digest(written)

    def sign_group(self, row: Row, outputs: list[list[Item]]) -> list[str]:
        """The receipts for outputs that were judged together, in their order: each depends on all of them."""
        receipts = [self.sign(row, output) for output in outputs]
        group = _digest(" ".join(receipts).encode())
        return [f"{receipt}.{group}" for receipt in receipts]


def verifier_digest(environment: Environment) -> str:
    """What identifies a verifier: its source and its settings."""
    kind = environment.resources
    if kind.verifier is not None:
        return kind.verifier
    content = blake2b(kind.__qualname__.encode(), digest_size=_DIGEST_SIZE)
    for source in _sources(kind, environment.folder):
        content.update(len(source).to_bytes(8, "big"))
        content.update(source)
    settings = redacted_settings(environment.config)
    try:
        content.update(orjson.dumps(settings, default=str, option=orjson.OPT_SORT_KEYS))
    except TypeError:  # a number that is too long for 64 bits, or a name that is not UTF-8
        content.update(encode(settings))
    return content.hexdigest()


def _sources(kind: type[Resources], folder: Path | None) -> Iterator[bytes]:
    """The text of every file that takes part in a verdict, in an order that does not depend on where it lies."""
    own = [path for path in sorted(folder.rglob("*.py")) if _counts(path.relative_to(folder))] if folder else []
    seen = {path.resolve() for path in own}
    waiting = list(own)
    for base in kind.__mro__:
        if base is Resources or not issubclass(base, Resources):
            continue
        path = _file_of(base)
        if path is None:
            yield _compiled(base)
        elif path not in seen:
            seen.add(path)
            waiting.append(path)
    while waiting:
        source = waiting.pop(0).read_bytes()
        yield source
        for path in _graders_in(source):
            if path not in seen:
                seen.add(path)
                waiting.append(path)


def _counts(path: Path) -> bool:
    return not any(
        part.startswith((".", "test_", "__pycache__")) or part in ("conftest.py", "qualify.py") for part in path.parts
    )


def _file_of(kind: type) -> Path | None:
    try:
        path = Path(inspect.getfile(kind)).resolve()
    except (TypeError, OSError):
        return None
    return path if path.is_file() else None


def _compiled(kind: type) -> bytes:
    """The code of a class that was typed into an interpreter and has no file."""
    functions = (getattr(member, "__func__", member) for member in vars(kind).values())
    return b"".join(marshal.dumps(each.__code__) for each in functions if inspect.isfunction(each))


def _graders_in(source: bytes) -> Iterator[Path]:
    """The files of our graders that a source imports."""
    for name in _imports(source):
        package, *parts = name.split(".")
        path = _ROOT.joinpath(*parts).with_suffix(".py")
        if package == _ROOT.name and _GRADERS in path.parents and path.is_file():
            yield path


def _imports(source: bytes) -> Iterator[str]:
    """The names of everything that a source imports, anywhere in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _task_digest(row: Row) -> str:
    """What a task is about, in whatever order its fields came and however it is named."""
    content = {key: row[key] for key in row if key not in NAMES}
    try:
        return digest(content)
    except TypeError:  # a row that never was JSON, from a list in Python
        return _digest(encode(content))


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=_DIGEST_SIZE).hexdigest()
