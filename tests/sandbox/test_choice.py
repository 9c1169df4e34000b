"""Which provider runs programs: chosen by what a spec needs, refused in one line where there is none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from registered import register
from root_file_systems import image_cache
from sandboxes import needs, spec_for

from ludus.errors import UserError
from ludus.sandbox import Sandbox, SandboxError, SandboxProvider, SandboxSpec
from ludus.sandbox.choice import explain, find, hosted_problems, install_command, local_provider, open_provider
from ludus.sandbox.resources import SandboxResources
from ludus.sandbox.router import SandboxRouter


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[None]:
    """A machine on which no program is found but a package manager."""
    from ludus.sandbox import choice

    choice._problem.cache_clear()
    manager = tmp_path / "dnf"
    manager.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    yield
    choice._problem.cache_clear()


@needs("bubblewrap")
@needs("oci")
async def test_auto_takes_the_provider_that_suits_the_spec(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ludus.sandbox.oci_images._default_cache", image_cache)
    provider = await open_provider(warm=0)
    try:
        async with await provider.open(SandboxSpec()) as plain, await provider.open(spec_for("oci")) as image:
            assert (await plain.exec("cat /etc/image")).stdout == b""
            assert (await image.exec("cat /etc/image")).text == "made by a test\n"
    finally:
        await provider.close()


def test_without_a_package_manager_the_command_is_named_all_the_same(nothing_installed: None, tmp_path: Any):
    for program in tmp_path.iterdir():
        program.unlink()
    assert install_command("bubblewrap") == "apt-get install -y bubblewrap"
    assert install_command("process") is None


def test_each_provider_says_what_to_install(nothing_installed: None):
    assert install_command("bubblewrap") == "dnf install -y bubblewrap"
    assert install_command("oci") == "dnf install -y runc"
    assert install_command("process") is None
    assert find("bubblewrap").problem == "bwrap is not installed"
    assert find("oci").problem == "runc is not installed"
    assert explain() == [
        "auto has no sandbox for programs: bwrap is not installed",
        "auto has no sandbox for programs of an image: runc is not installed",
    ]


@needs("process")
async def test_the_process_provider_without_the_programs_that_it_starts_is_refused_in_one_line(
    nothing_installed: None,
):
    with pytest.raises(UserError, match="sandbox provider process: rm is not installed, or not on PATH") as raised:
        await open_provider("process")
    assert "\n" not in str(raised.value)
    provider = local_provider("process")
    with pytest.raises(SandboxError, match="process .*No such file or directory"):
        await provider.open(SandboxSpec())
    await provider.close()


class Plain(SandboxResources):
    """Runs code."""


class Image(SandboxResources):
    """Runs code in an image."""

    sandbox_spec = SandboxSpec(image="/image")


@pytest.mark.parametrize(("kind", "package"), [(Plain, "bubblewrap"), (Image, "runc")])
async def test_an_environment_that_needs_a_sandbox_refuses_to_start_without_one(
    kind: type[SandboxResources], package: str, nothing_installed: None
):
    with pytest.raises(UserError, match=f"code needs a sandbox.*Install it with: dnf install -y {package}") as raised:
        async with kind.share(kind.Config()):
            pass
    assert "\n" not in str(raised.value)


class Sockets(SandboxResources):
    """Programs that talk to each other."""

    sandbox_spec = SandboxSpec(unix_sockets=True, packages=("orjson",))


class Folders(SandboxResources):
    """Programs that look for /app."""

    sandbox_spec = SandboxSpec(folders=("app",))


@pytest.mark.parametrize(
    ("kind", "settings", "refusal"),
    [
        (Sockets, {"provider": "process"}, "process lets programs make no Unix sockets. .* can use: bubblewrap"),
        (Folders, {"provider": "process"}, "process has no folders of its own at the root .*/app.* use: bubblewrap"),
        (Plain, {"provider": "oci"}, "oci needs an image: set resources.sandbox.image"),
        (Plain, {"provider": "bubblewrap", "image": "/x"}, "bubblewrap takes no image .*use the provider oci"),
        (Sockets, {"image": "/x"}, "oci cannot add Python packages .*orjson.* Leave out resources.sandbox.image"),
    ],
)
async def test_an_environment_that_needs_what_its_provider_lacks_refuses_to_start(
    kind: type[SandboxResources], settings: dict[str, Any], refusal: str
):
    with pytest.raises(UserError, match=f"^sandbox provider {refusal}") as raised:
        async with kind.share(kind.Config(sandbox=settings)):
            pass
    assert "\n" not in str(raised.value)


class RowsWithImages(Folders):
    """Rows bring the image."""

    images_from_rows = True


@needs("oci")
async def test_oci_needs_no_image_at_start_where_rows_bring_theirs():
    async with RowsWithImages.share(RowsWithImages.Config(sandbox={"provider": "oci"})) as provider:
        with pytest.raises(SandboxError, match="oci needs an image"):
            await provider.open(SandboxSpec())


async def test_a_provider_that_is_named_and_missing_is_refused(nothing_installed: None):
    with pytest.raises(UserError, match="sandbox provider oci: runc is not installed"):
        await open_provider("oci")


async def test_an_unknown_provider_is_refused_with_the_nearest_name():
    with pytest.raises(UserError, match="Did you mean bubblewrap"):
        await open_provider("bublewrap")


class Recording(SandboxProvider):
    """Opens nothing, and remembers that it was asked and closed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.closed = False

    async def open(self, spec: SandboxSpec) -> Sandbox:
        raise SandboxError(f"{self.name} was asked")

    async def close(self) -> None:
        self.closed = True


async def test_a_router_makes_each_provider_once_and_closes_those_that_it_made():
    made: list[Recording] = []

    def make(name: str) -> Recording:
        made.append(Recording(name))
        return made[-1]

    router = SandboxRouter("any", lambda spec: spec.image or "none", make)
    for image in ("a", "b", "a"):
        with pytest.raises(SandboxError, match=f"{image} was asked"):
            await router.open(SandboxSpec(image=image))
    await router.close()
    assert [(one.name, one.closed) for one in made] == [("a", True), ("b", True)]


def install_providers(monkeypatch: pytest.MonkeyPatch, **targets: str) -> None:
    """Make these the only providers that other packages bring."""
    register(monkeypatch, "ludus.sandboxes", **targets)


class OfAPackage(SandboxProvider):
    """A provider that another package brings."""

    name = "of_a_package"

    @classmethod
    def problem(cls) -> str | None:
        return "its key is not set"

    async def open(self, spec: SandboxSpec) -> Sandbox:
        raise SandboxError("was asked")


async def test_a_provider_of_another_package_opens_by_its_name(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "of_a_package", sys.modules[__name__])
    install_providers(monkeypatch, mine="of_a_package:OfAPackage")
    assert isinstance(await open_provider("mine"), OfAPackage)
    assert hosted_problems() == {"mine": "its key is not set"}
    with pytest.raises(UserError, match="Did you mean mine"):
        await open_provider("mines")


@pytest.mark.parametrize("name", ["daytona", "e2b", "modal"])
async def test_a_hosted_provider_without_its_package_is_refused_with_the_pip_command(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    install_providers(monkeypatch)
    monkeypatch.setattr("ludus.errors.DISTRIBUTION", "a copy that pip did not install")
    with pytest.raises(UserError) as caught:
        await open_provider(name)
    wanted = "Install it with: pip install ludus-sandboxes"
    assert str(caught.value) == f"sandbox provider {name} is in another package. {wanted}"
    assert hosted_problems() == {}
