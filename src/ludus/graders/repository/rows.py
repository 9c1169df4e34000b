"""Rows of repository tasks, with the field names of SWE-bench and SWE-Gym."""

from __future__ import annotations

import ast
import json
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


def base_tree(files: dict[str, str]) -> Tree:
    """The files of a row. A path that leads elsewhere is a bad row."""
    for path in files:
        if not is_plain(path):
            raise Failure("bad_row", f"files has a path that is not allowed: {path!r:.80}")
    return {path: text.encode() for path, text in files.items()}


def hidden_tests(base: Tree, test_patch: str, fail: list[str], keep: list[str], hide_expected: bool) -> RepositoryTests:
    """The hidden tests of a row, from its `test_patch`."""
    try:
        patched, touched = apply_patch(base, test_patch), paths_of(test_patch)
    except PatchError as error:
        raise Failure("bad_row", f"test_patch does not fit the row's files: {error}") from error
    if not fail:
        raise Failure("bad_row", "FAIL_TO_PASS is empty: no change could be told from none")
    files = {path: patched[path] for path in touched if path in patched}
    for path, data in files.items():
        if hide_expected and path.endswith(".py"):
            try:
                ast.parse(data)
            except (SyntaxError, ValueError) as error:
                raise Failure("bad_row", f"test_patch writes {path:.80}, which is no Python: {error}") from error
    return RepositoryTests(tuple(fail), tuple(keep), files, hide_expected)


def preparation_of(script: str, hosts: list[str], allowed: list[str]) -> SetUp:
    """The set-up of a row. Hosts that the operator did not allow are refused."""
    if refused := sorted(set(hosts) - set(allowed)):
        setting = f"--set 'resources.allowed_hosts={json.dumps(sorted({*hosts, *allowed}))}'"
        raise Failure(
            "bad_row", f"the task's set-up wants to reach {', '.join(refused):.200}: allow that with {setting}"
        )
    return SetUp(script, tuple(hosts))
