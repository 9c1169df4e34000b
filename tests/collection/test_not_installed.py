"""A package that is not installed stops a collection with the command that installs it, before models are paid."""

from __future__ import annotations

import re
import sys

import pytest

import ludus
from ludus import Environment, Resources, ScriptedModel, UserError
from ludus.errors import missing_extra
from ludus.folder import folders
from ludus.integrations.mcp import McpResources
from ludus.sandbox import SandboxSpec
from ludus.sandbox.resources import SandboxResources

ROWS = [{"responses_create_params": {"input": "x"}, "n": n} for n in range(20)]


class NeedsASandboxPackage(SandboxResources):
    sandbox_spec = SandboxSpec(packages=("no-such-package",))

    async def verify(self, task, response):
        return 1.0


class HasItsOwnServers(McpResources):
    async def servers(self, task):
        raise AssertionError("a rollout began")

    async def verify(self, task, response):
        return 1.0


class ImportsLate(Resources):
    async def verify(self, task, response):
        import no_such_package.inner

        return no_such_package.inner.judge(response)


class NeedsAnExtra(Resources):
    def open(self, task):
        raise missing_extra("math-verify", "math")

    async def verify(self, task, response):
        return 1.0


def stopped(resources, **options) -> tuple[str, int]:
    """Why a collection of twenty rows stopped, and how many calls of the model it made."""
    calls = []
    model = ScriptedModel(lambda request: calls.append(request) or "x")
    with pytest.raises(UserError) as caught:
        ludus.collect(resources, model=model, input=ROWS, concurrency=2, **options)
    return str(caught.value), len(calls)


def test_a_package_of_the_sandbox_is_missed_before_the_first_rollout():
    why, calls = stopped(NeedsASandboxPackage)
    assert why.startswith("the sandbox needs a package: no-such-package is not installed. Correct the name")
    assert calls == 0


def test_mcp_is_missed_before_the_first_rollout_also_by_resources_with_servers_of_their_own(monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    why, calls = stopped(HasItsOwnServers)
    assert why.startswith("MCP is not installed. Install it with: pip install ")
    assert "[mcp]" in why
    assert calls == 0


def test_a_missing_extra_stops_the_run_at_its_first_rollouts_and_not_at_each_of_them():
    why, calls = stopped(NeedsAnExtra)
    assert re.match(r"test_not_installed.py:[0-9]+ in open: math-verify is not installed. Install it with: pip ", why)
    assert calls == 0


def test_a_module_that_a_verifier_imports_late_stops_the_run_at_its_first_rollouts():
    why, calls = stopped(ImportsLate)
    place, _, why = why.partition(": ")
    assert re.fullmatch(r"test_not_installed.py:[0-9]+ in verify", place)
    assert why == "no_such_package is not installed. Correct the name, or install the package that provides it"
    assert calls < len(ROWS)


@pytest.mark.parametrize(
    ("module", "extra"), [("math_verify", "math"), ("mcp", "mcp"), ("gymnasium.spaces", "gymnasium")]
)
def test_a_file_that_imports_a_package_of_an_extra_is_told_the_extra(tmp_path, monkeypatch, module, extra):
    monkeypatch.setitem(sys.modules, module.partition(".")[0], None)
    (tmp_path / "environment.yaml").write_text("name: mine\nresources: resources.py:Mine\n")
    (tmp_path / "resources.py").write_text(f"\nimport {module}\n")
    with pytest.raises(UserError) as caught:
        Environment.load(tmp_path)
    place, missing, told = str(caught.value).split(": ", maxsplit=2)
    assert place == f"{tmp_path}/resources.py:2"
    assert missing.partition(" ")[0] in (module, module.partition(".")[0])  # Python 3.13 names the package
    assert missing.endswith(" is not installed. Install it with")
    assert told.startswith("pip ")
    assert f"[{extra}]" in told


@pytest.mark.parametrize(
    ("line", "missing", "hint"),
    [
        ("import installd_here", "installd_here", "Did you mean installed_here?"),
        ("import installed_here.inside", "installed_here.inside", "installed_here is installed, but it has no inside"),
        ("from jsno import loads", "jsno", "Did you mean json?"),
        ("import nunpy", "nunpy", "Did you mean numpy?"),
        ("import gymnasum", "gymnasum", "Did you mean gymnasium?"),
        ("import no_such", "no_such", "Correct the name, or install the package that provides it"),
        ("import more", "more", "For the one beside this file, write: from . import more"),
        ("import prices", "prices", "For the one beside this file, write: from . import prices"),
    ],
)
def test_a_misspelled_import_is_never_told_to_install_that_name(tmp_path, monkeypatch, line, missing, hint):
    packages, mine = tmp_path / "packages", tmp_path / "mine"
    packages.mkdir()
    mine.mkdir()
    (packages / "installed_here.py").write_text("")
    (mine / "environment.yaml").write_text("name: mine\nresources: resources.py:Mine\n")
    (mine / "resources.py").write_text(f"{line}\n")
    (mine / "prices.py").write_text("")
    (mine / "more").mkdir()
    monkeypatch.syspath_prepend(str(packages))
    with pytest.raises(UserError) as caught:
        Environment.load(mine)
    assert str(caught.value) == f"{mine}/resources.py:1: {missing} is not installed. {hint}"


@pytest.mark.parametrize(
    ("name", "hidden", "extra"),
    [
        ("math_with_judge", "math_verify", "math"),
        ("gymnasium", "gymnasium", "gymnasium"),
        ("instruction_following", "langdetect", "instructions"),
    ],
)
def test_our_environments_name_their_extra_before_the_first_rollout(monkeypatch, name, hidden, extra):
    real = sys.modules["importlib.util"].find_spec
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("ludus.") and getattr(module, "find_spec", None) is real:
            monkeypatch.setattr(module, "find_spec", lambda wanted, *rest: None if wanted == hidden else real(wanted))
    monkeypatch.setitem(sys.modules, hidden, None)
    calls = []
    model = ScriptedModel(lambda request: calls.append(request) or "x")
    assert name in folders()
    with pytest.raises(UserError, match=rf"is not installed. Install it with: pip install .*\[{extra}\]"):
        ludus.collect(name, model=model, limit=3)
    assert calls == []


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("raise BaseException('all of it')", "BaseException: all of it"),
        ("raise ModuleNotFoundError('odd', name=5)", "ModuleNotFoundError: odd"),
        ("raise ImportError", "ImportError"),
        ("raise type('Mute', (ImportError,), {'__str__': lambda self: 1 / 0})", "Mute"),
        ("__import__('n' * 5000)", "n" * 80 + " is not installed. Correct the name"),
    ],
)
def test_whatever_an_import_raises_is_one_short_line(tmp_path, code, told):
    (tmp_path / "environment.yaml").write_text("name: mine\nresources: resources.py:Mine\n")
    (tmp_path / "resources.py").write_text(f"{code}\n")
    with pytest.raises(UserError) as caught:
        Environment.load(tmp_path)
    assert f"{tmp_path}/resources.py:1: {told}" in str(caught.value)
    assert len(str(caught.value)) < 600
