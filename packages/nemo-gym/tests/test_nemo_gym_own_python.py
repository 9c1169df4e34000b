"""A server whose requirements collide with ours runs in a Python of its own; what it misses is named when it starts."""

from __future__ import annotations

import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest
from hosted_servers import row, write_server

import ludus
from ludus import ScriptedModel, UserError

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")

ONLY_THERE = """
import sys

from only_there import ANSWER


class Server(SimpleResourcesServer):
    config: BaseResourcesServerConfig

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        right = body.response.output_text == ANSWER and sys.prefix.endswith("my env")
        return BaseVerifyResponse(**body.model_dump(), reward=float(right))
"""
MISSING = """
import no_such_package.part


class Server(SimpleResourcesServer):
    config: BaseResourcesServerConfig
"""


def collect(folder: Path, **settings: Any) -> Any:
    named = {f"resources.{key}": value for key, value in settings.items()}
    return ludus.collect(folder, model=ScriptedModel(["blue"]), settings=named)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with Ludus and one module more."""
    place = tmp_path_factory.mktemp("environment") / "my env"
    venv.create(place, symlinks=True, with_pip=False)
    (site,) = place.glob("lib/python*/site-packages")
    ours = sysconfig.get_path("purelib")
    (site / "ludus.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    (site / "only_there.py").write_text("ANSWER = 'blue'\n")
    return place


@pytest.fixture
def server(tmp_path: Path) -> Path:
    return write_server(tmp_path, "other_python", ONLY_THERE, [row("?")])


def test_another_python_is_another_process_whatever_isolate_says(server: Path, environment: Path) -> None:
    results = collect(server, python=str(environment / "bin" / "python"), isolate=False)
    assert [rollout.reward for rollout in results.rollouts] == [1.0]


def test_a_relative_python_starts_at_the_working_directory(
    server: Path, environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(environment.parent)
    assert collect(server, python="my env/bin/python").rollouts[0].reward == 1.0


def test_the_python_of_a_server_is_no_part_of_a_run(server: Path) -> None:
    environment = ludus.Environment.load(server)
    environment.configure({"resources.python": "/some/python"})
    config = environment.config
    assert config.python == "/some/python"
    assert "python" not in config.model_dump(mode="json")


def test_a_python_that_does_not_exist_is_one_error(server: Path) -> None:
    with pytest.raises(
        UserError, match=r"--set resources.python=/no/python: there is no such program. Name the Python of"
    ):
        collect(server, python="/no/python")


def test_a_python_without_our_package_says_where_to_read_what_to_do(server: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    venv.create(bare, symlinks=True, with_pip=False)
    with pytest.raises(UserError, match=r"No module named 'ludus_nemo_gym'.* must have ludus-nemo-gym\[servers\]: see"):
        collect(server, python=str(bare / "bin" / "python"))


@pytest.mark.parametrize("isolate", [True, False])
def test_a_missing_package_is_installed_as_the_requirements_name_it(tmp_path: Path, isolate: bool) -> None:
    files = {"requirements.txt": "-e nemo-gym[dev] @ ../../\nno-such-package[all]>=1.5\n"}
    folder = write_server(tmp_path, f"missing_{isolate}".lower(), MISSING, [row("?")], files=files)
    with pytest.raises(UserError) as caught:
        collect(folder, isolate=isolate)
    place, _, rest = str(caught.value).partition(": ")
    assert place.startswith(str(folder / "app.py"))
    command = "pip install 'no-such-package[all]>=1.5'"
    assert rest == (
        f"no_such_package is not installed. Install it with: {command} (all that is missing: ludus doctor {folder})"
    )


def test_a_missing_package_of_another_python_is_installed_there(tmp_path: Path, environment: Path) -> None:
    files = {"requirements.txt": "no-such-package\n"}
    folder = write_server(tmp_path, "missing_there", MISSING, [row("?")], files=files)
    python = str(environment / "bin" / "python")
    with pytest.raises(UserError, match=rf"Install it with: '{python}' -m pip install no-such-package"):
        collect(folder, python=python)


def test_a_key_without_a_value_stops_a_server_before_it_starts(tmp_path: Path) -> None:
    settings = {"search_api_key": "${search_api_key}", "size": "???"}
    folder = write_server(tmp_path, "keyless", MISSING, [row("?")], settings=settings)
    with pytest.raises(
        UserError, match=r"keyless has no value for size, search_api_key. Add: --set resources.size=VALUE"
    ):
        collect(folder)


def test_a_module_that_no_requirement_names_is_not_guessed(tmp_path: Path) -> None:
    folder = write_server(tmp_path, "unnamed", MISSING, [row("?")], files={"requirements.txt": "numpy\n"})
    with pytest.raises(UserError, match=r"no_such_package is not installed. Correct the name, or install"):
        collect(folder, isolate=False)
    assert "no_such_package" not in sys.modules
