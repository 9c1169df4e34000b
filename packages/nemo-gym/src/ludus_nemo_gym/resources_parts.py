"""A resources server of a configuration as a part of a launch: Ludus's environment, or the server's own code."""

from __future__ import annotations

from pathlib import Path

from ludus.environment import Environment
from ludus.errors import UserError, did_you_mean
from ludus.folder import folders
from ludus_nemo_gym.launch import RemotePart, ResourcesPart
from ludus_nemo_gym.masking import is_secret_key
from ludus_nemo_gym.names import FOLDER_SETTINGS, PREFER_OWN_CODE, RESOURCES, RESOURCES_SETTINGS, SERVER_FIELDS
from ludus_nemo_gym.own_code import hosted_part
from ludus_nemo_gym.parts import Parts, by_host_and_port, by_url, renamed
from ludus_nemo_gym.search_paths import (
    environment_folder,
    environment_names,
    find_setting_file,
    folder_beside,
    foreign_code,
)
from ludus_nemo_gym.servers import ServerEntry

#: Settings with these endings name a file.
_FILE_SUFFIXES = ("_fpath", "_path")

#: Settings of a resources server about its simulated user, which belong to the agent in Ludus.
_USER_FIELDS = {"user_model_server", "user_responses_create_params"}


def resources_part(parts: Parts, server: ServerEntry) -> ResourcesPart | RemotePart:
    """The part of a resources server. Raises if there is no such environment and no such code."""
    folder = environment_folder(server.implementation)
    code = foreign_code(RESOURCES, server.implementation, parts.config.files)
    if code is not None and parts.config.tree.get(PREFER_OWN_CODE):
        folder = None
    remote = by_url(server)
    if remote is not None:
        remote.environment = _environment_spec(server.implementation, folder) if folder is not None else None
        return remote
    if folder is not None:
        if code is not None:
            ours = f"{server.name} is Ludus's environment {server.implementation}, not {code}"
            parts.notes.append(f"{ours} (to run that: ++{PREFER_OWN_CODE}=true)")
        return _environment(parts, server, folder)
    if code is not None:
        return hosted_part(parts, server, code.parent)
    if (remote := by_host_and_port(server)) is not None:
        return remote
    what = f"{server.name}: there is no resources server {server.implementation}"
    raise UserError(what, did_you_mean(server.implementation, environment_names()))


def _environment(parts: Parts, server: ServerEntry, folder: Path) -> ResourcesPart:
    known = Environment.load(str(folder)).resources.Config.model_fields
    part, unknown = ResourcesPart(_environment_spec(server.implementation, folder)), []
    block = renamed(server.block, RESOURCES_SETTINGS.get(server.implementation, {}))
    for key, value in block.items():
        if key in SERVER_FIELDS or (key in _USER_FIELDS and key not in known):
            continue
        word = key.removesuffix("_model_server")
        if word != key and word in known and isinstance(value, dict):
            part.settings |= parts.model_settings(server, key, word, value)
        elif is_secret_key(key) and key in known:
            part.secret_settings[key] = value
        elif is_secret_key(key):
            parts.secrets |= {key.upper(): str(value)} if value is not None else {}
        elif key not in known:
            unknown.append(key)
        elif key.endswith("_responses_create_params") and isinstance(value, dict):
            part.settings[key] = {name: field for name, field in value.items() if name != "input"}
        elif key.endswith(_FILE_SUFFIXES) and isinstance(value, str):
            file = find_setting_file(value, server.implementation)
            part.settings[key] = str(file.absolute()) if file is not None else value
        else:
            part.settings[key] = value
    parts.note_unknown(server, unknown, list(known))
    setting, marks = FOLDER_SETTINGS.get(server.implementation, ("", ()))
    if setting in known and setting not in part.settings:
        beside = folder_beside(server.implementation, marks, parts.config.files)
        part.settings |= {setting: str(beside)} if beside is not None else {}
    return part


def _environment_spec(name: str, folder: Path) -> str:
    """The name of an installed environment; the folder of any other."""
    return name if folders().get(name) == folder else str(folder.resolve())
