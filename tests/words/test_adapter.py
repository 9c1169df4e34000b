"""Other people's environments are known to the packages that register an adapter."""

from __future__ import annotations

from pathlib import Path

import pytest
from registered import register

from ludus import Environment
from ludus.adapter import Listed, Need, adapt, listing, needs
from ludus.errors import MissingExtra, UserError


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, "ludus.adapters")


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An adapter `mine` that knows folders with a file `mine.txt`."""
    code = (
        "from pathlib import Path\n"
        "from ludus.adapter import Listed, Need\n\n"
        "def adapt(text):\n    return text if (Path(text) / 'mine.txt').is_file() else None\n\n"
        "def needs(text):\n    return [Need('rain', None, 'so dry')] if adapt(text) else None\n\n"
        "def listing(folder):\n    yield Listed('one', folder)\n"
    )
    (tmp_path / "adapter_of_mine.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    register(monkeypatch, "ludus.adapters", mine="adapter_of_mine")
    folder = tmp_path / "garden"
    folder.mkdir()
    (folder / "mine.txt").touch()
    return folder


def test_an_adapter_is_a_module_with_three_functions(registered: Path) -> None:
    assert adapt(str(registered)) == str(registered)
    assert adapt(f"mine:{registered}") == str(registered)
    assert needs(str(registered)) == [Need("rain", None, "so dry")]
    assert list(listing("mine", "somewhere")) == [Listed("one", "somewhere")]


def test_a_text_that_no_adapter_knows_has_no_needs(registered: Path) -> None:
    with pytest.raises(UserError, match=r"adapter_of_mine.py is not a folder of other people's tools"):
        needs(str(registered.parent / "adapter_of_mine.py"))
    with pytest.raises(UserError, match="is not a folder that the adapter mine knows"):
        needs(f"mine:{registered.parent}")


@pytest.mark.usefixtures("bare")
def test_without_the_package_the_command_that_installs_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "app.py").touch()
    (tmp_path / "configs").mkdir()
    with pytest.raises(MissingExtra, match=r"Install it with: pip install .*nemo-gym"):
        needs(str(tmp_path))
    with pytest.raises(MissingExtra, match=r"Install it with: pip install .*nemo-gym"):
        Environment.load(tmp_path)
    with pytest.raises(MissingExtra, match=r"what reads here is in another package. Install it with: .*nemo-gym"):
        listing("nemo-gym", "here")


def test_an_environment_runs_here_unless_something_is_surely_missing() -> None:
    unsure, missing = Need("network", None, "a guess"), Need("judge", False, "none is set")
    assert Listed("one", "/one", needs=(unsure,)).runs == "yes"
    assert Listed("one", "/one", needs=(unsure, missing)).runs == "judge: none is set"
    assert Listed("one", "/one", needs=(missing,), problem="torn").runs == "broken: torn"
