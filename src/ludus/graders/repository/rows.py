"""Rows of repository tasks, with the field names of SWE-bench and SWE-Gym."""

from __future__ import annotations

import ast
import json
import re
from typing import Annotated, Any

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from ludus.errors import Failure
from ludus.graders.repository.checkout import SetUp
from ludus.graders.repository.grading import RepositoryTests
from ludus.graders.repository.patches import PatchError, apply_patch, paths_of
from ludus.graders.repository.trees import Tree, is_plain


def _listed(value: Any) -> Any:
    """A list, or the JSON text of one, as some datasets have it."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise PydanticCustomError("json_list", "must be a list of tests, or its JSON text") from error
    return value


#: The names of tests: a list, or the JSON text of one.
TestNames = Annotated[list[str], BeforeValidator(_listed)]

_DIFF = re.compile(r"^(\+\+\+ |diff --git )", re.MULTILINE)
_DEFINED = re.compile(r"\bdef\s+(test\w*)")
#: Code that generates names of tests at run time.
_MAKES_NAMES = re.compile(r"\b(globals|locals|vars|setattr|exec|type)\s*\(|\bimport\s+\*|__dict__|\bmetaclass\b")


def base_tree(files: dict[str, str]) -> Tree:
    """The files of a row. A path that leads elsewhere is a bad row."""
    for path in files:
        if not is_plain(path):
            raise Failure("bad_row", f"files has a path that is not allowed: {path!r:.80}")
    return {path: text.encode() for path, text in files.items()}


def hidden_tests(
    base: Tree,
    test_patch: str,
    fail: list[str],
    keep: list[str],
    hide_expected: bool,
    *,
    apart: bool = False,
    set_up: bool = False,
) -> RepositoryTests:
    """The hidden tests of a row, from its `test_patch`. A row whose tests no change could pass is a bad row.

    `set_up` says whether a script of the row may make further files, so that a test's file may be missing here.
    """
    check_tests(test_patch, fail)
    try:
        patched, touched = apply_patch(base, test_patch), paths_of(test_patch)
    except PatchError as error:
        raise Failure("bad_row", f"test_patch does not fit the row's files: {error}") from error
    files = {path: patched[path] for path in touched if path in patched}
    for path, data in files.items():
        if hide_expected and path.endswith(".py"):
            try:
                ast.parse(data)
            except (SyntaxError, ValueError) as error:
                raise Failure("bad_row", f"test_patch writes {path:.80}; that is not Python: {error}") from error
    for field, names in (("FAIL_TO_PASS", fail), ("PASS_TO_PASS", keep)):
        _check_names(field, names, {**base, **patched}, set_up)
    return RepositoryTests(tuple(fail), tuple(keep), files, hide_expected, apart)


def check_tests(test_patch: str, fail: list[str]) -> None:
    """Raise `bad_row` for a text that is no diff, or if no test distinguishes the patch from an empty one."""
    if not fail:
        raise Failure("bad_row", "FAIL_TO_PASS is empty: no test distinguishes the patch from an empty one")
    if test_patch.strip() and not _DIFF.search(test_patch):
        raise Failure("bad_row", f"test_patch is not a diff: {test_patch.strip()!r:.80}")


def _check_names(field: str, names: list[str], tree: Tree, set_up: bool) -> None:
    """Raise `bad_row` for a test that no file has: no change could make it pass."""
    for name in names:
        path, separator, inside = name.partition("::")
        if not separator or not inside:
            raise Failure("bad_row", f"{field} names {name!r:.120}, which is not of the form FILE::TEST")
        if path not in tree and not set_up:
            raise Failure("bad_row", f"{field} names {name:.120}, but neither files nor test_patch has {path:.120}")
        if path in tree and not set_up and not _may_define(path, inside, tree):
            raise Failure("bad_row", f"{field} names {name:.120}, but {path:.120} has no such test")


def _may_define(path: str, inside: str, tree: Tree) -> bool:
    """Whether a file can have a test. Tests that are inherited, imported or made when the file runs are allowed."""
    name = inside.partition("[")[0].rpartition("::")[2]
    text = tree[path].decode(errors="replace")
    if not path.endswith(".py") or not name.isidentifier() or name in text or _MAKES_NAMES.search(text):
        return True
    if any(name.startswith(f"{defined}_") for defined in _DEFINED.findall(text)):  # parameterized adds to the name
        return True
    return any(name.encode() in data for other, data in tree.items() if other.endswith(".py"))


def preparation_of(script: str, hosts: list[str], allowed: list[str]) -> SetUp:
    """The set-up of a row. Hosts that the operator did not allow are refused."""
    if refused := sorted(set(hosts) - set(allowed)):
        setting = f"--set 'resources.allowed_hosts={json.dumps(sorted({*hosts, *allowed}))}'"
        raise Failure("bad_row", f"the task wants to reach {', '.join(refused):.200}: allow that with {setting}")
    return SetUp(script, tuple(hosts))
