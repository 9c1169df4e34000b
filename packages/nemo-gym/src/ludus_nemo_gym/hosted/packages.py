"""Packages and modules: which package provides a module, and what is installed in a Python."""

from __future__ import annotations

import importlib.util
import re
import sys
from importlib.machinery import PathFinder
from importlib.metadata import Distribution, distributions
from pathlib import Path

#: Packages whose name is not the name of their module.
_DISTRIBUTIONS = {
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "fitz": "pymupdf",
    "git": "gitpython",
    "hydra": "hydra-core",
    "pil": "pillow",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}

#: Packages that NeMo Gym installs itself and Ludus does not. Requirement files need not name them.
ASSUMED = frozenset(
    "openai anthropic uvicorn hydra-core requests pandas datasets huggingface-hub wandb mlflow mcp tqdm psutil "
    "numpy".split()
)


def distribution_of(module: str) -> str:
    """The package that provides a module, by its name."""
    name = normal(module.partition(".")[0])
    return _DISTRIBUTIONS.get(name, name)


def provides(package: str, module: str) -> bool:
    """Whether a package seems to provide a module: by its name, or a part of it (`python-chess` and `chess`)."""
    name = normal(module.partition(".")[0])
    return package in (name, distribution_of(module)) or name in package.split("-")


def normal(name: str) -> str:
    """The name of a package as PyPI compares names."""
    return re.sub(r"[-_.]+", "-", name).lower()


class Installed:
    """The packages of one Python: of this one, or of a virtual environment. Nothing of them is imported."""

    def __init__(self, environment: Path | None = None) -> None:
        self.environment = environment
        self._versions: dict[str, str | None] = {}
        self._sites = [str(site) for site in (environment or Path()).glob("lib/python*/site-packages")]

    @property
    def python(self) -> str:
        """The version of this Python. An environment says it in its `pyvenv.cfg`."""
        try:
            settings = (self.environment / "pyvenv.cfg").read_text("utf-8") if self.environment is not None else ""
        except OSError:
            settings = ""
        match = re.search(r"^version(?:_info)?\s*=\s*(\d+\.\d+\.\d+)", settings, re.MULTILINE)
        return match[1] if match else ".".join(map(str, sys.version_info[:3]))

    def version(self, package: str) -> str | None:
        """The installed version of a package."""
        if package not in self._versions:
            first = next(iter(self._distributions(package)), None)
            self._versions[package] = first.version if first is not None else None
        return self._versions[package]

    def has_module(self, module: str) -> bool:
        """Whether a module can be imported, by the first part of its name."""
        name = module.partition(".")[0]
        if name in sys.stdlib_module_names:
            return True
        if self.environment is not None:
            return PathFinder.find_spec(name, self._sites) is not None
        try:
            return importlib.util.find_spec(name) is not None
        except ValueError:  # a module that was made by hand
            return True

    def _distributions(self, package: str) -> list[Distribution]:
        if self.environment is not None:
            return list(distributions(name=package, path=self._sites))
        return list(distributions(name=package))


def own_environment(place: Path) -> Installed | None:
    """A server's own virtual environment, if it exists and has this package in it."""
    installed = Installed(place)
    return installed if installed.version("ludus-nemo-gym") is not None else None
