"""Models of other packages: a spec finds them by their entry point, and a missing one is named with its package."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, EntryPoints
from types import SimpleNamespace
from typing import Any

import pytest

from ludus import ScriptedModel, UserError
from ludus.models import open_model


def install_models(monkeypatch: pytest.MonkeyPatch, **targets: str) -> None:
    """Make these the only models that other packages bring."""
    entries = EntryPoints(EntryPoint(name, target, "ludus.models") for name, target in targets.items())
    monkeypatch.setattr("ludus.models.entry_points", lambda **wanted: entries.select(**wanted))


def test_a_spec_opens_the_model_of_another_package(monkeypatch: pytest.MonkeyPatch):
    opened: list[tuple[str, dict[str, Any]]] = []

    def open_parrot(rest: str, settings: dict[str, Any]) -> ScriptedModel:
        opened.append((rest, settings))
        return ScriptedModel(["squawk"])

    monkeypatch.setitem(sys.modules, "of_a_package", SimpleNamespace(open_parrot=open_parrot))
    install_models(monkeypatch, parrot="of_a_package:open_parrot", openai="of_a_package:open_parrot")
    assert isinstance(open_model("parrot:grey", {"loud": True}), ScriptedModel)
    open_model({"type": "parrot", "loud": False})
    assert opened == [("grey", {"loud": True}), ("", {"loud": False})]
    open_model("openai:http://127.0.0.1:9/v1#m")
    assert len(opened) == 2, "our own kinds come first"
    with pytest.raises(UserError, match="Did you mean parrot"):
        open_model("parot:grey")


@pytest.mark.parametrize("spec", ["transformers:PATH", {"type": "transformers", "path": "PATH"}])
def test_a_model_of_transformers_without_its_package_is_one_line_with_the_pip_command(
    monkeypatch: pytest.MonkeyPatch, spec: Any
):
    install_models(monkeypatch)
    monkeypatch.setattr("ludus.errors.DISTRIBUTION", "a copy that pip did not install")
    with pytest.raises(UserError) as caught:
        open_model(spec)
    wanted = "model transformers is in another package. Install it with: pip install ludus-trainers"
    assert str(caught.value) == wanted
