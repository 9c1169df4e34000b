"""`ludus sandbox`: images for sandboxes, built here without a container engine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ludus.cli.commands import Argument, CommandGroup, Option


@CommandGroup
def sandbox() -> None:
    """Build images for sandboxes, list and remove them.

    Example: ludus sandbox base debian --for ubuntu:24.04
    """


@sandbox.command
def build(
    folder: Annotated[Path, Argument(help="A folder with a Dockerfile, or a task with environment/Dockerfile.")],
    network: Annotated[
        bool, Option("--network", help="Let its commands reach the network, with this machine's pip and apt settings.")
    ] = False,
    base: Annotated[
        list[str] | None, Option("--base", metavar="NAME=PATH", help="A root file system for FROM NAME.")
    ] = None,
    json_: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """Build the image of a Dockerfile.

    An image that was built before is not built again. Prints the name for sandbox.image.

    Example: ludus sandbox build tasks/hello --base ubuntu:24.04=/srv/debian
    """
    from ludus.cli.screen import safe_json
    from ludus.errors import UserError
    from ludus.sandbox.bases import Bases
    from ludus.sandbox.building import ImageBuilder
    from ludus.sandbox.dockerfile import ImageRecipe

    named = dict[str, str]()
    for text in base or ():
        name, equals, path = text.partition("=")
        if not equals or not path:
            raise UserError(f"--base {text} names no path", "Write --base NAME=PATH")
        named[name] = path
    place = folder / "environment" if (folder / "environment" / "Dockerfile").is_file() else folder
    builder = ImageBuilder(Bases(named))
    name = builder.build(ImageRecipe.of_folder(place, network))
    image = builder.image(name)
    print(safe_json({"image": name, "root": str(image.root), "workdir": image.workdir}) if json_ else name)


@sandbox.command
def base(
    source: Annotated[str, Argument(help="debian, or the folder or tar archive of a root file system.")],
    names: Annotated[
        list[str], Option("--for", metavar="NAME", help="An image name in FROM that it replaces, such as python:*.")
    ],
    suite: Annotated[str, Option("--suite", help="The release of Debian.")] = "bookworm",
    mirror: Annotated[str, Option("--mirror", help="Debian's packages; by default as apt has them.")] = "",
) -> None:
    """Use a local root file system in place of an image.

    With debian, debootstrap makes a small one from Debian's packages, once.

    Example: ludus sandbox base debian --for ubuntu:24.04 --for debian:bookworm-slim
    """
    from ludus.sandbox.bases import Bases, make_debian

    path = make_debian(suite, mirror or None) if source == "debian" else Path(source)
    Bases().add(names, path)
    print(f"{', '.join(names)}: {path}")


@sandbox.command
def images(json_: Annotated[bool, Option("--json", help="Print JSON.")] = False) -> None:
    """List the bases and the images in the cache.

    Example: ludus sandbox images
    """
    from rich.table import Table

    from ludus.cli.screen import print_unbroken, safe_json, stdout_console, text
    from ludus.sandbox.bases import Bases
    from ludus.sandbox.building import ImageBuilder, size_of
    from ludus.sandbox.oci_images import BUILT

    bases = Bases().table
    entries = [
        {"image": f"{BUILT}{about['key']}" if "key" in about else "", "name": about["name"], "bytes": size_of(folder)}
        for folder, about in ImageBuilder().store.listed()
    ]
    if json_:
        print(safe_json({"bases": bases, "images": entries}))
        return
    table = Table("what", "name", "MB", box=None)
    for name, path in sorted(bases.items()):
        table.add_row("base", text(f"{name}: {path}"), "")
    for entry in entries:
        table.add_row(text(entry["image"] or "unpacked"), text(entry["name"]), f"{int(entry['bytes']) >> 20:,}")
    print_unbroken(stdout_console(), table)


@sandbox.command
def prune(
    bases: Annotated[bool, Option("--bases", help="Also remove the bases and the names that they replace.")] = False,
) -> None:
    """Remove the images that were built here. The cache of their builds is removed too.

    Example: ludus sandbox prune
    """
    from ludus.sandbox.building import ImageBuilder

    print(f"{ImageBuilder().prune(bases=bases) >> 20:,} MB freed")
