"""A method that was meant as a tool and has no `@tool` gets a warning: no model can call it, and rollouts earn 0."""

from __future__ import annotations

import sys
from pathlib import Path

import forked
import pytest

import ludus
from ludus import Resources, ScriptedModel, tool
from ludus.folder import folders

RESOURCES = '''
from ludus import Resources, tool


class Shop(Resources):
    async def look_up_price(self, item: str) -> int:
        """Look up what one piece costs."""
        return 3

    async def verify(self, task, response):
        return float("3" in response.output_text)
'''


class Shop(Resources):
    async def look_up_price(self, item: str) -> int:
        return 3

    async def verify(self, task, response):
        return 0.0


class Documented(Resources):
    def stock(self):
        """How many pieces are left."""

    async def verify(self, task, response):
        return 0.0


class OneForgotten(Shop):
    @tool
    async def greet(self) -> str:
        return "hello"


class UsesItsOwn(Resources):
    async def look_up_price(self, item: str) -> int:
        return 1

    async def verify(self, task, response):
        return float(await self.look_up_price("pen"))


class Fine(Resources):
    """Methods that are called, private, marked, of the class, or without a sign that a model may call them."""

    @tool(name="price")
    async def look_up_price(self, item: str) -> int:
        return self.total(3)

    def total(self, price: int) -> int:
        return price

    def helper(self):
        return 1

    def _private(self, item: str) -> int:
        return 1

    @classmethod
    def made(cls, item: str) -> int:
        return 1

    @staticmethod
    def rounded(item: float) -> int:
        return 1

    @property
    def size(self) -> int:
        """The size."""
        return 1

    async def verify(self, task, response):
        return 0.0


class Dispatches(Resources):
    async def price(self, item: str) -> int:
        return 3

    async def call(self, name: str, arguments: str) -> str:
        return str(await getattr(self, name)("pen"))

    async def verify(self, task, response):
        return 0.0


def warnings(resources, *offered):
    tools = [{"type": "function", "name": name, "parameters": {}} for name in offered]
    params = {"input": "x", **({"tools": tools} if tools else {})}
    return ludus.collect(resources, model=ScriptedModel(["x"]), input=[{"responses_create_params": params}]).warnings


@pytest.mark.parametrize(
    ("resources", "offered", "method"),
    [
        (Shop, [], "Shop.look_up_price"),
        (Shop, ["look_up_price"], "Shop.look_up_price"),
        (Documented, [], "Documented.stock"),
        (OneForgotten, [], "Shop.look_up_price"),
        (UsesItsOwn, ["look_up_price"], "UsesItsOwn.look_up_price"),
    ],
)
def test_a_method_that_looks_like_a_tool_gets_one_warning_with_its_place_and_the_remedy(resources, offered, method):
    (warning,) = warnings(resources, *offered)
    place, _, rest = warning.partition(": ")
    file, _, line = place.rpartition(":")
    name = method.partition(".")[2]
    assert (Path(file).name, name in Path(file).read_text().splitlines()[int(line) - 1]) == (Path(__file__).name, True)
    assert rest == f"{method} has no @tool: no model can call it. Write @tool above it, or call it _{name}"


@pytest.mark.parametrize(("resources", "offered"), [(UsesItsOwn, []), (Fine, []), (Fine, ["price"]), (Dispatches, [])])
def test_methods_that_are_called_or_cannot_be_tools_get_no_warning(resources, offered):
    assert warnings(resources, *offered) == []


def test_no_environment_of_ours_has_a_forgotten_tool():
    from ludus.cli.new import COOKBOOK
    from ludus.collection.forgotten_tools import forgotten_tools
    from ludus.environment import Environment

    ours = [*folders().values(), *(file.parent for file in COOKBOOK.glob("*/environment.yaml"))]
    assert [warning for each in ours for warning in forgotten_tools(Environment.from_folder(each))] == []


@pytest.fixture
def shop(tmp_path):
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "environment.yaml").write_text(
        "name: shop\nresources: resources.py:Shop\ndatasets: [{name: example, path: rows.jsonl}]\n"
    )
    (folder / "resources.py").write_text(RESOURCES)
    (folder / "rows.jsonl").write_text('{"responses_create_params": {"input": "the price of a pen?"}}\n')
    return folder


@pytest.mark.parametrize("command", ["collect", "chat", "qualify"])
def test_commands_that_play_rollouts_print_the_warning(shop, tmp_path, command):
    (tmp_path / "script.yaml").write_text("- '3'\n")
    options = ["--model", "scripted:script.yaml"] if command != "qualify" else []
    ran = forked.run(
        [sys.executable, "-m", "ludus", command, str(shop), *options],
        capture_output=True, text=True, cwd=tmp_path, input="", timeout=60,
    )  # fmt: skip
    said = [line for line in (ran.stdout + ran.stderr).splitlines() if line.startswith("warning: ")]
    assert len(said) == 1
    assert said[0].startswith(f"warning: {shop}/resources.py:6: Shop.look_up_price has no @tool")
