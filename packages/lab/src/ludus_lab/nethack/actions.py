"""The actions of a player by name, and the keys that NetHack gets for them.

Only these keys reach the game. A single letter is an answer to a question of the game, and is refused where the game
asks none: as commands some letters would end the game or change its options.
"""

from __future__ import annotations

import re

#: The eight directions, with the step in columns and rows.
DIRECTIONS = {
    "north": ("k", 0, -1),
    "south": ("j", 0, 1),
    "east": ("l", 1, 0),
    "west": ("h", -1, 0),
    "northeast": ("u", 1, -1),
    "northwest": ("y", -1, -1),
    "southeast": ("n", 1, 1),
    "southwest": ("b", -1, 1),
}

_META = 128
_COMMANDS = {
    **{name: ord(key) for name, (key, _, _) in DIRECTIONS.items()},
    **{f"far {name}": ord(key.upper()) for name, (key, _, _) in DIRECTIONS.items()},
    "up": ord("<"),
    "down": ord(">"),
    "wait": ord("."),
    "more": ord("\r"),
    "esc": 27,
    "apply": ord("a"),
    "cast": ord("Z"),
    "chat": ord("c") + _META,
    "close": ord("c"),
    "dip": ord("d") + _META,
    "drop": ord("d"),
    "eat": ord("e"),
    "engrave": ord("E"),
    "fight": ord("F"),
    "fire": ord("f"),
    "force": ord("f") + _META,
    "inventory": ord("i"),
    "invoke": ord("i") + _META,
    "jump": ord("j") + _META,
    "kick": 4,
    "look": ord(":"),
    "loot": ord("l") + _META,
    "offer": ord("o") + _META,
    "open": ord("o"),
    "pay": ord("p"),
    "pick up": ord(","),
    "pray": ord("p") + _META,
    "put on": ord("P"),
    "quaff": ord("q"),
    "read": ord("r"),
    "remove": ord("R"),
    "search": ord("s"),
    "sit": ord("s") + _META,
    "swap": ord("x"),
    "take off": ord("T"),
    "throw": ord("t"),
    "untrap": ord("u") + _META,
    "wear": ord("W"),
    "wield": ord("w"),
    "wipe": ord("w") + _META,
    "zap": ord("z"),
}

#: The names of all actions.
NAMES = tuple(_COMMANDS)

_TAGS = re.compile(r"<actions>([^<>]{0,1000})</actions>")
_REPLY = re.compile(r"[A-Za-z0-9$*?,#-]")


def key_of(name: str, is_asked: bool) -> int | None:
    """The key of an action, or of a letter where the game asks for one; None for anything else."""
    if name in _COMMANDS:
        return _COMMANDS[name]
    return ord(name) if is_asked and _REPLY.fullmatch(name) else None


def actions_of(text: str, most: int) -> list[str] | None:
    """The names between the last pair of tags; None if there are none, too many, or one that cannot be an action."""
    tags = _TAGS.findall(text)
    names = [" ".join(name.split()) for name in tags[-1].split(",")] if tags else []
    names = [name if len(name) == 1 else name.lower() for name in names]
    is_valid = all(name in _COMMANDS or _REPLY.fullmatch(name) for name in names)
    return names if 0 < len(names) <= most and is_valid else None
