"""Builds the server of a source: imports its class, checks its settings, makes its application."""

from __future__ import annotations

import importlib.util
import inspect
import pickle
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from pydantic import BaseModel, ConfigDict, ValidationError

from ludus.errors import UserError, did_you_mean, not_installed
from ludus.runtime.imports import author_error, describe
from ludus.runtime.wording import describe_errors
from ludus_nemo_gym.hosted.correlating import Correlating
from ludus_nemo_gym.hosted.source import ENTRY, ServerSource
from ludus_nemo_gym.masking import SHORTEST, secrets_in
from ludus_nemo_gym.names import MODELS, POLICY_SERVER


class Hosting(BaseModel):
    """What to host: a server's source, its instance, the merged configuration, its own settings in it, the names of
    those that a user added, and the names of the settings that every server has."""

    model_config = ConfigDict(extra="forbid")

    source: ServerSource
    instance: str
    tree: dict[str, Any]
    block: dict[str, Any] = {}
    added: list[str] = []
    for_all: list[str] = []
    set_with: str = "--set resources."
    python: str = ""

    def packed(self) -> bytes:
        """All of it in plain values, which any version of Python and of pydantic can read."""
        source = {key: str(value) if isinstance(value, Path) else value for key, value in vars(self.source).items()}
        return pickle.dumps({**self.model_dump(exclude={"source"}), "source": source})

    @classmethod
    def unpacked(cls, content: bytes) -> Hosting:
        """What `packed` wrote."""
        return cls.model_validate(pickle.loads(content))

    def secrets(self) -> list[str]:
        """The keys, tokens and passwords in the configuration, longest first."""
        return sorted((secret for secret in secrets_in(self.tree) if len(secret) >= SHORTEST), key=len, reverse=True)

    def build(self) -> Correlating:
        """The application. Raises a `UserError` that names what is missing or wrong."""
        source = self.source
        entry = str(self.block.get("entrypoint") or ENTRY)
        if not (source.folder / entry).resolve().is_relative_to(source.folder):
            raise UserError(f"{self.instance}: entrypoint {entry:.80} is outside of {source.folder}")
        try:
            module = source.load(entry)
        except ModuleNotFoundError as error:
            place = _place(error, source) or str(source.folder / entry)
            raise not_installed(str(error.name), place, self._remedy(str(error.name))) from error
        except UserError:
            raise
        except (Exception, SystemExit) as error:
            place = _syntax_place(error) or _place(error, source) or str(source.folder / entry)
            raise UserError(f"{place}: {describe(error)}") from error
        from nemo_gym._simple_server import application_of
        from nemo_gym.global_config import configuration_context

        kind = source.server_class(module, entry)
        try:
            client = self._client()
            with configuration_context(client.global_config_dict):
                app = Correlating(application_of(kind(config=self._config(kind), server_client=client)), client)
            client._local[self.instance] = app
        except UserError:
            raise
        except ModuleNotFoundError as error:
            raise not_installed(str(error.name), _place(error, source), self._remedy(str(error.name))) from error
        except (Exception, SystemExit) as error:
            raise author_error(error, kind) from error
        return app

    def _config(self, kind: Any) -> Any:
        declared = kind.model_fields["config"].annotation
        self._check_names(declared.model_fields)
        address = {"host": "127.0.0.1", "port": 0, "entrypoint": ENTRY}
        try:
            return declared.model_validate({**address, **self.block, "name": self.instance})
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            problem = describe_errors(where, [first], first["input"])
            raise UserError(f"{self.instance}: {problem}", f"Set it with: {self.set_with}{where}=VALUE") from error

    def _check_names(self, known: Iterable[str]) -> None:
        """Refuse a setting of the user that the server does not have. Unknown keys of its own files are ignored."""
        for name in self.added:
            if name not in known:
                raise UserError(f"{self.instance} has no setting {name}", did_you_mean(name, [*known, *self.for_all]))

    def _remedy(self, module: str) -> str:
        """How to install a module, in the words of the server's requirements; empty if they do not name it."""
        from ludus_nemo_gym.hosted.requirements import pip_install, read_requirements

        name = module.partition(".")[0]
        try:
            requirements = read_requirements(self.source.folder, self.source.root)
        except UserError:
            return ""
        package = requirements.explain(name)
        if package is None or importlib.util.find_spec(name) is not None:
            return ""
        command = pip_install(requirements.arguments([package]))
        command = f"{shlex.quote(sys.executable)} -m {command}" if self.python else command
        return f"Install it with: {command} (all that is missing: ludus doctor {self.source.folder})"

    def _client(self) -> Any:
        from nemo_gym.server_utils import BaseServerConfig, ServerClient

        head = BaseServerConfig(host="127.0.0.1", port=0)
        tree = OmegaConf.create(_with_policy_of_rollout(self.tree))
        return ServerClient.model_construct(head_server_config=head, global_config_dict=tree)


def _with_policy_of_rollout(tree: dict[str, Any]) -> dict[str, Any]:
    """The configuration with a `policy_base_url` that names the rollout in which it is read."""
    from nemo_gym._addresses import base_url_of
    from nemo_gym.global_config import POLICY_BASE_URL_KEY_NAME

    policy = (tree.get(POLICY_SERVER) or {}).get(MODELS, {}).get("ludus")
    if policy is None or tree.get(POLICY_BASE_URL_KEY_NAME) != f"http://{policy['host']}:{policy['port']}/v1":
        return tree
    name = f"policy_base_url_{policy['port']}"  # this process may host several servers
    register: Any = OmegaConf.register_resolver
    if "replace" not in inspect.signature(register).parameters:  # another function until omegaconf 2.4
        register = OmegaConf.register_new_resolver
    register(name, lambda: f"{base_url_of(policy)}/v1", replace=True)
    return {**tree, POLICY_BASE_URL_KEY_NAME: f"${{{name}:}}"}


def _syntax_place(error: BaseException) -> str:
    """`FILE:LINE` of a syntax error, which is not a line of its traceback; empty for any other error."""
    return f"{error.filename}:{error.lineno}" if isinstance(error, SyntaxError) and error.filename else ""


def _place(error: BaseException, source: ServerSource) -> str:
    """`FILE:LINE` of the innermost line of the server's folder in a traceback."""
    import traceback

    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(str(source.folder))
    ]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
