"""The head server: where it is, and the configuration that it serves."""

from __future__ import annotations

import yaml

from ludus.errors import UserError
from ludus.remote.http import connect
from ludus_nemo_gym.names import HEAD_SERVER
from ludus_nemo_gym.trees import Tree, plain

#: The environment variable that holds the token of running servers.
TOKEN = "LUDUS_TOKEN"
#: The addresses at which a server on every address is reached.
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


def head_url(tree: Tree) -> str:
    """The head's URL according to a configuration."""
    head = tree.get(HEAD_SERVER)
    head = head if isinstance(head, dict) else {}
    host = str(head.get("host") or tree.get("default_host") or "127.0.0.1")
    return f"http://{ANY_ADDRESS.get(host, host)}:{head.get('port') or 11000}"


async def configuration_of(head: str) -> Tree:
    """The configuration that a head serves: its servers with their addresses. Raises a `Failure` if it serves none."""
    async with connect(head, TOKEN) as client:
        reply = await client.get("/global_config_dict_yaml")
        if reply.status != 200:
            raise client.failure(reply)
    return _configuration(head, reply.body)


def _configuration(head: str, body: bytes) -> Tree:
    """The tree in the head's reply: YAML in a JSON string, or plain YAML."""
    try:
        content = yaml.safe_load(body)
        content = yaml.safe_load(content) if isinstance(content, str) else content
    except yaml.YAMLError as error:
        raise UserError(f"{head} did not reply with a configuration") from error
    if not isinstance(content, dict):
        raise UserError(f"{head} did not reply with a configuration")
    tree: Tree = plain(content)
    return tree
