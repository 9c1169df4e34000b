"""The code of a server: its folder, the checkout around it, and how Python imports it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ludus.errors import UserError
from ludus_nemo_gym.hosted.importing import import_fresh
from ludus_nemo_gym.hosted.reached import ENTRY as ENTRY
from ludus_nemo_gym.hosted.reached import parsed, python_files, reached_code
from ludus_nemo_gym.names import AGENTS, KINDS, RESOURCES

#: The methods with which a server computes metrics of its own.
_METRICS = re.compile(rb"def (compute_metrics|get_key_metrics|compute_repeat_metrics|aggregate_metrics)\b")


@dataclass(frozen=True)
class ServerSource:
    """One server: `root/kind/implementation/app.py` in a checkout, or a folder that stands alone (`root` is None)."""

    folder: Path
    kind: str
    implementation: str
    root: Path | None = None
    config_file: Path | None = None

    @classmethod
    def find(cls, which: str) -> ServerSource | None:
        """The server of a folder, of an `app.py` or of a configuration file in `configs`; None for anything else."""
        path = Path(which).expanduser().resolve()
        config = path if path.suffix in (".yaml", ".yml") and path.parent.name == "configs" else None
        folder = path.parent.parent if config is not None else path.parent if path.name == ENTRY else path
        if not (folder / ENTRY).is_file():
            return None
        place = next((parent for parent in folder.parents if parent.name in KINDS), None)
        if place is not None:
            return cls(folder, place.name, folder.relative_to(place).as_posix(), place.parent, config)
        return cls(folder, _kind_in(folder / ENTRY), folder.name, None, config)

    @property
    def search_path(self) -> list[str]:
        """What the server's code expects in front of Python's search path: its own folder, then the checkout."""
        return [str(self.folder), *([str(self.root)] if self.root is not None else [])]

    @property
    def configs(self) -> list[Path]:
        """The configuration files of the server, the one that is named after it first."""
        files = sorted((self.folder / "configs").glob("*.yaml"))
        return sorted(files, key=lambda file: file.stem != self.folder.name)

    def module_name(self, entry: str) -> str:
        """The name under which other code of the checkout imports the entry file."""
        stem = entry.removesuffix(".py").replace("/", ".")
        return f"{self.kind}.{self.implementation.replace('/', '.')}.{stem}" if self.root is not None else stem

    def load(self, entry: str = ENTRY) -> ModuleType:
        """Import the entry file. Its folder and its checkout stay on the search path."""
        import nemo_gym  # noqa: F401  # ours comes first: a whole checkout holds a package of this name too

        return import_fresh(self.module_name(entry), self.search_path, [self.folder, *self.code_of_others()])

    def server_class(self, module: ModuleType, entry: str = ENTRY) -> Any:
        """The class that the entry file serves: `NAME.run_webserver()`, or the last server class that it defines."""
        named = [getattr(module, name, None) for name in _served(self.folder / entry)]
        defined = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
        for kind in (*named, *reversed(defined)):
            if isinstance(kind, type) and hasattr(kind, "setup_webserver") and "config" in kind.model_fields:  # type: ignore[attr-defined]
                return kind
        hint = "End it with: if __name__ == '__main__': CLASS.run_webserver()"
        raise UserError(f"{self.folder / entry} defines no server", hint)

    def computes_metrics(self) -> bool:
        """Whether the code has metrics of its own, besides the means that every server has."""
        files = (path for folder in (self.folder, *self.code_of_others()) for path in python_files(folder))
        return any(_METRICS.search(path.read_bytes()) for path in files)

    def code_of_others(self) -> tuple[Path, ...]:
        """The folders of other servers and the files of the checkout that this server imports, and what they import."""
        return reached_code(self.folder, self.root) if self.root is not None else ()


def _kind_in(entry: Path) -> str:
    """The kind of a server outside of a checkout, by the base class that its code names."""
    names = {node.id for node in ast.walk(parsed(entry)) if isinstance(node, ast.Name)}
    return AGENTS if "SimpleResponsesAPIAgent" in names else RESOURCES


def _served(entry: Path) -> list[str]:
    """The classes whose `run_webserver` the file calls."""
    calls = (node.func for node in ast.walk(parsed(entry)) if isinstance(node, ast.Call))
    return [
        call.value.id
        for call in calls
        if isinstance(call, ast.Attribute) and call.attr == "run_webserver" and isinstance(call.value, ast.Name)
    ]
