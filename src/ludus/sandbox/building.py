"""Images from Dockerfiles, without a container engine: buildah builds, and the result is unpacked as any image is.

An image is built once for each content of its Dockerfile, its files and its bases.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ludus.errors import UserError
from ludus.sandbox.bases import Bases, cache_folder, hint_for
from ludus.sandbox.buildah import Buildah, base_name, locked, unmount
from ludus.sandbox.docker_engine import image_settings
from ludus.sandbox.dockerfile import Dockerfile, ImageRecipe
from ludus.sandbox.oci_images import BUILT, ImageStore, UnpackedImage, fingerprint, image_key


@dataclass
class ImageBuilder:
    """Builds images. Calls of several threads and processes wait for each other."""

    bases: Bases = field(default_factory=Bases)
    cache: Path = field(default_factory=cache_folder)

    def __post_init__(self) -> None:
        self.store = ImageStore(self.cache / "images")

    def image(self, name: str) -> UnpackedImage:
        """The image of a name that `build` returned."""
        built = self.store.built(name)
        assert built is not None, name
        return built

    def check(self, recipe: ImageRecipe) -> dict[str, Path]:
        """The base for each image that a recipe is built on. Raises a `UserError` if there is none, in one line."""
        bases = {}
        for use in Dockerfile(recipe.dockerfile).images:
            base = self.bases.find(use.image)
            if base is None:
                what = f"{recipe.place}:{use.line}: {use.text.split(maxsplit=1)[0]} {use.image}"
                raise UserError(f"{what}: no base on this machine stands for this image", hint_for(use.image))
            bases[use.image] = base
        return bases

    def build(self, recipe: ImageRecipe) -> str:
        """Build an image, unless it was built before. Returns the name for a sandbox's spec."""
        bases = self.check(recipe)
        prints = {image: _print_of(path) for image, path in bases.items()}
        key = _key(recipe, prints)
        if self.store.built(f"{BUILT}{key}") is not None:
            return f"{BUILT}{key}"
        if (problem := problem_with_builds()) is not None:
            raise UserError(f"{recipe.place} cannot be built: {problem[0]}", problem[1])
        with Buildah(self.cache / "builds") as buildah:
            if self.store.built(f"{BUILT}{key}") is None:  # else another one was faster
                for image, path in bases.items():
                    buildah.add_base(prints[image], path)
                text = Dockerfile(recipe.dockerfile).on(lambda image: base_name(prints[image]))
                buildah.build(recipe, text, key)
                about = {"name": recipe.place, "key": key, "bases": sorted(bases), "built": time.time()}
                self._take(buildah, key, about)
        return f"{BUILT}{key}"

    def _take(self, buildah: Buildah, key: str, about: dict[str, Any]) -> None:
        with buildah.mounted(f"localhost/ludus/built:{key}") as (root, config):
            pack = ["tar", "-C", root, "--one-file-system", "-cf", "-", "."]
            with subprocess.Popen(pack, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as packing:
                assert packing.stdout is not None
                self.store.add(packing.stdout, key, {**about, **image_settings(config)})

    def prune(self, *, bases: bool = False) -> int:
        """Remove built images and buildah's store, and the bases that we made if that is asked for. Returns bytes."""
        listed = [folder for folder, about in self.store.listed() if about.get("key")]
        gone = [*listed, *([self.cache / "bases"] if bases else [])]
        with locked(self.cache / "builds"):
            freed = sum(size_of(folder) for folder in [*gone, self.cache / "builds"])
            unmount(self.cache / "builds")
            for folder in [*gone, self.cache / "builds" / "root", self.cache / "builds" / "run"]:
                shutil.rmtree(folder, ignore_errors=True)
            if bases:
                (self.cache / "bases.json").unlink(missing_ok=True)
        return freed


def problem_with_builds() -> tuple[str, str] | None:
    """Why this machine cannot build images, and what to do about it; None if it can."""
    if shutil.which("buildah") is None:
        return "buildah is not installed", "Install it with: apt-get install -y buildah runc"
    if shutil.which("runc") is None:
        return "runc is not installed", "Install it with: apt-get install -y runc"
    if os.geteuid() != 0:
        return "buildah needs root to build here", "Run as root, or name a built image: resources.sandbox.image=PATH"
    return None


def size_of(folder: Path) -> int:
    """The bytes of the files under a folder."""
    files = (os.path.join(place, name) for place, _, names in os.walk(folder) for name in names)
    return sum(os.lstat(path).st_size for path in files if os.path.lexists(path))


def _print_of(path: Path) -> str:
    """A digest of a base that changes with its files."""
    about = path.stat()
    content = fingerprint(path) if path.is_dir() else f"{about.st_size} {about.st_mtime_ns}"
    return image_key("base", str(path), content)


def _key(recipe: ImageRecipe, bases: Mapping[str, str]) -> str:
    """A digest of everything that a built image depends on."""
    files = hashlib.sha256()
    for path, data in sorted(recipe.files.items()):
        head = f"{path}\0{path in recipe.executable}\0{len(data)}\0"
        files.update(head.encode(errors="surrogateescape") + data)
    return image_key("built", recipe.dockerfile, files.hexdigest(), json.dumps(dict(sorted(bases.items()))))
