"""A checkout: a folder with `resources_servers` in it, whose servers are listed one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from ludus.adapter import Listed
from ludus.errors import UserError
from ludus_nemo_gym.hosted.source import ENTRY, ServerSource
from ludus_nemo_gym.names import KINDS, RESOURCES


def list_servers(folder: str, examine: Callable[[ServerSource], Listed]) -> Iterator[Listed]:
    """Examine each resources server of a checkout. A broken one is listed with its problem."""
    checkout = Path(folder).expanduser().resolve()
    place = checkout if checkout.name == RESOURCES else checkout / RESOURCES
    folders = server_folders(place)
    if not folders:
        raise UserError(f"{folder} has no servers in {RESOURCES}", "Name a checkout of NeMo Gym, or a folder like one")
    return (_listed(path, path.relative_to(place).as_posix(), examine) for path in folders)


def server_folders(place: Path) -> list[Path]:
    """The folders of the servers below a folder. Some are a level deeper, and none is inside of another."""
    try:
        folders = sorted(path for path in place.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:
        return []
    deeper = {path: sorted(entry.parent for entry in path.glob(f"*/{ENTRY}")) for path in folders}
    return [server for path in folders for server in ([path] if (path / ENTRY).is_file() else deeper[path])]


def refuse_folder(which: str) -> None:
    """Raise if a folder is a checkout, a folder of many servers, or a server without code. Any other is not ours."""
    folder = Path(which).expanduser().resolve()
    place = folder if folder.name in KINDS else folder / RESOURCES
    servers = server_folders(place)
    if servers:
        hint = f"Name one of them, such as {servers[0]}. List them: ludus envs --nemo-gym {place.parent}"
        raise UserError(f"{which} holds {len(servers)} server{'s' * (len(servers) > 1)}, and is none itself", hint)
    if folder.parent.name in KINDS and (folder / "configs").is_dir():
        raise UserError(f"{which} has no {ENTRY}", "Name the folder of a server with its code")


def _listed(folder: Path, name: str, examine: Callable[[ServerSource], Listed]) -> Listed:
    try:
        source = ServerSource.find(str(folder))
        if source is None:
            return Listed(name, str(folder), problem=f"it has no {ENTRY}")
        return examine(source)
    except UserError as error:
        return Listed(name, str(folder), problem=str(error))
    except Exception as error:  # one strange server must not hide the others
        return Listed(name, str(folder), problem=f"{type(error).__name__}: {error}")
