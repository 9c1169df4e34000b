"""A receipt of a hosted server changes with every file that its code imports from the checkout."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hosted_servers import row, write_server

from ludus import Environment
from ludus.store.receipts import verifier_digest, verifier_files

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")

SERVER = """
import importlib

from benchmarks.thing.score import judge as of_a_namespace
from pkg.sub import deep
from resources_servers.helpers.util import judge as of_helpers
from test_cases import judge as of_tests

from ..relative.util import judge as of_a_relative
from .. import by_name

by_text = importlib.import_module("resources_servers.by_text.app")


class Server(SimpleResourcesServer):
    config: BaseResourcesServerConfig

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        from late import judge

        return BaseVerifyResponse(**body.model_dump(), reward=judge())
"""
FILES = {
    "benchmarks/thing/score.py": "JUDGE",
    "late.py": "from later import judge",
    "later.py": "JUDGE",
    "pkg/__init__.py": "",
    "pkg/sub/__init__.py": "",
    "pkg/sub/deep.py": "JUDGE",
    "resources_servers/by_name/app.py": "JUDGE",
    "resources_servers/by_text/app.py": "JUDGE",
    "resources_servers/helpers/util.py": "JUDGE",
    "resources_servers/importing/test_cases.py": "JUDGE",
    "resources_servers/relative/app.py": "",
    "resources_servers/relative/util.py": "JUDGE",
}


def _checkout(root: Path) -> Path:
    folder = write_server(root, "importing", SERVER, [row("?")])
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text.replace("JUDGE", "def judge():\n    return 1.0\n"))
    return folder


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_imported_changes_the_receipt(tmp_path: Path, name: str) -> None:
    folder = _checkout(tmp_path)
    before = verifier_digest(Environment.load(folder))
    (tmp_path / name).write_text("def judge():\n    return 0.5\n")
    assert verifier_digest(Environment.load(folder)) != before


def test_another_place_and_other_files_leave_the_receipt_as_it_is(tmp_path: Path) -> None:
    before = verifier_digest(Environment.load(_checkout(tmp_path / "a")))
    shutil.move(tmp_path / "a", tmp_path / "b")
    (tmp_path / "b" / "pkg" / "other.py").write_text("1")
    (tmp_path / "b" / "resources_servers" / "unrelated").mkdir()
    (tmp_path / "b" / "resources_servers" / "unrelated" / "app.py").write_text("1")
    assert verifier_digest(Environment.load(tmp_path / "b" / "resources_servers" / "importing")) == before


def test_each_file_of_a_verifier_has_a_name(tmp_path: Path) -> None:
    files = verifier_files(Environment.load(_checkout(tmp_path)))
    assert files is not None
    assert {"app.py", "util.py", "deep.py", "score.py", "later.py"} <= {Path(name).name for name in files}
