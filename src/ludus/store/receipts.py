"""Receipts: short digests that show whether a stored reward is stale.

A receipt is `VERIFIER.TASK.RESPONSE`: the digest of the verifier's source and settings (the judge's settings included),
the digest of the task's fields, and the digest of the model's output. `ludus verify` computes the receipt again from a
stored row. If it differs, the verifier, the task or the response has changed since, and the reward is stale. The
receipt of a response that was judged in a group ends with a fourth digest, of all responses in the group.

A verifier's source is the Python files of the environment's folder, the files of the classes that its resources inherit
from, and the files of `ludus.graders` that these import. Other packages, data files and a judge's weights do not count.
"""

from __future__ import annotations

import ast
import inspect
import marshal
import warnings
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

import orjson

from ludus.environment import Environment
from ludus.errors import UserError
from ludus.outcome import NAMES
from ludus.record import Row
from ludus.resources import Resources
from ludus.response import Item, encoded_items
from ludus.runtime.encoding import encode
from ludus.runtime.imports import stale_files
from ludus.runtime.redaction import redacted_settings
from ludus.task import digest

#: The folder of this package, and its folder of graders, which verifiers may import.
_ROOT = Path(__file__).parents[1]
_GRADERS = _ROOT / "graders"

_DIGEST_SIZE = 6


class Signer:
    """Writes the receipts of one environment. The digests of the verifier and of the last task are cached, because the
    repeats of a task follow each other.

    signer = Signer(environment)
    signer.sign(row, response.output)   # '1c0f62a9b3d4.77aa01bc24e5.0e1d2c3b4a59'
    """

    __slots__ = ("_prefix", "_row", "verifier")

    def __init__(self, environment: Environment) -> None:
        self.verifier = verifier_digest(environment)
        self._row: Row | None = None
        self._prefix = ""

    def sign(self, row: Row, output: list[Item], task_id: str | None = None) -> str:
        """The receipt for a task's row and the output of a response.

        `task_id` saves work: without a `task_id` in the row, this one starts with the row's digest.
        """
        if row is not self._row:
            self._row, self._prefix = row, self.prefix(row, task_id)
        return sign_output(self._prefix, output)

    def prefix(self, row: Row, task_id: str | None = None) -> str:
        """The part of a receipt that is the same for all responses to a task."""
        is_digest = task_id is not None and NAMES.isdisjoint(row)
        task = task_id if task_id is not None and is_digest else _task_digest(row)
        return f"{self.verifier}.{task[: 2 * _DIGEST_SIZE]}."

    def sign_group(self, row: Row, outputs: list[list[Item]]) -> list[str]:
        """The receipts for outputs that were judged as a group, in order. Each receipt depends on all outputs."""
        receipts = [self.sign(row, output) for output in outputs]
        group = _digest(" ".join(receipts).encode())
        return [f"{receipt}.{group}" for receipt in receipts]


def sign_output(prefix: str, output: list[Item]) -> str:
    """The receipt for the output of a response to the task of a `Signer.prefix`."""
    return prefix + _digest(encode(encoded_items(output)))


def verifier_digest(environment: Environment) -> str:
    """The digest of a verifier's source and settings."""
    kind = environment.resources
    if kind.verifier:
        return kind.verifier
    content = blake2b(kind.__qualname__.encode(), digest_size=_DIGEST_SIZE)
    for _, source in _sources(environment):
        content.update(len(source).to_bytes(8, "big"))
        content.update(source)
    settings = redacted_settings(environment.config)
    try:
        content.update(orjson.dumps(settings, default=str, option=orjson.OPT_SORT_KEYS))
    except TypeError:  # an integer over 64 bits, or text that is not UTF-8
        content.update(encode(settings))
    return content.hexdigest()


def verifier_files(environment: Environment) -> dict[str, str] | None:
    """The digest of each source file of a verifier; None if a server holds it."""
    kind = environment.resources
    if kind.verifier is not None:
        return None
    if environment.folder is not None and (stale := stale_files(environment.folder)):
        raise UserError(f"{stale[0]} has changed since it was imported", "Load the environment again")
    return {name: _digest(source) for name, source in sorted(_sources(environment))}


def _sources(environment: Environment) -> Iterator[tuple[str, bytes]]:
    """The name and the content of every source file of a verifier. The order does not depend on the folder's path."""
    kind, folder = environment.resources, environment.folder
    folders = [*([folder] if folder else []), *environment.code]
    files = [
        path
        for place in folders
        for path in ([place] if place.is_file() else sorted(place.rglob("*.py")))
        if path.is_file() and _is_source(path.relative_to(place))
    ]
    seen = {path.resolve() for path in files}
    queue = list(files)
    for base in kind.__mro__:
        if base is Resources or not issubclass(base, Resources):
            continue
        path = _file_of(base)
        if path is None:
            yield base.__qualname__, _compiled(base)
        elif path not in seen:
            seen.add(path)
            queue.append(path)
    while queue:
        path = queue.pop(0)
        source = path.read_bytes()
        yield _name_of(path, environment), source
        for path in _graders_in(source):
            if path not in seen:
                seen.add(path)
                queue.append(path)


def _name_of(path: Path, environment: Environment) -> str:
    """A source file's path in its folder, or in this package; the name of any other file."""
    others = [(folder, f"{folder.name}/") for folder in (*environment.code, _ROOT)]
    for root, prefix in ((environment.folder, ""), *others):
        if root is not None and path != root and path.is_relative_to(root):
            return prefix + path.relative_to(root).as_posix()
    return f"{path.parent.name}/{path.name}" if path in environment.code else path.name


def _is_source(path: Path) -> bool:
    others = ("conftest.py", "qualify.py", "tests")
    return not any(part.startswith((".", "test_", "__pycache__")) or part in others for part in path.parts)


def _file_of(kind: type) -> Path | None:
    try:
        path = Path(inspect.getfile(kind)).resolve()
    except (TypeError, OSError):
        return None
    return path if path.is_file() else None


def _compiled(kind: type) -> bytes:
    """The bytecode of a class without a file, such as one typed into an interpreter."""
    functions = (getattr(member, "__func__", member) for member in vars(kind).values())
    return b"".join(marshal.dumps(function.__code__) for function in functions if inspect.isfunction(function))


def _graders_in(source: bytes) -> Iterator[Path]:
    """The files of `ludus.graders` that a source imports."""
    for name in _imports(source):
        package, *parts = name.split(".")
        path = _ROOT.joinpath(*parts).with_suffix(".py")
        if package == _ROOT.name and _GRADERS in path.parents and path.is_file():
            yield path


@lru_cache(maxsize=128)
def _imports(source: bytes) -> list[str]:
    """The names of all modules that a source imports, at the top or inside functions."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # not Python: its bytes count, its imports do not
        return []
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
    return names


def _task_digest(row: Row) -> str:
    """The digest of a task's fields in any order, without the fields that name the task or its environment."""
    content = {key: row[key] for key in row if key not in NAMES}
    try:
        return digest(content)
    except TypeError:  # a Python row with values that are not JSON
        return _digest(encode(content))


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=_DIGEST_SIZE).hexdigest()
