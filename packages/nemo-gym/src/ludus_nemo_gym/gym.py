"""The `gym` command, whose alias is `ng`: groups of subcommands with flags. Each is one of the `ng_*` commands.

`gym env start --resources-server mcqa` is `ng_run '+config_paths=[resources_servers/mcqa/configs/mcqa.yaml]'`. Hydra's
overrides may be mixed with flags.
"""

from __future__ import annotations

import platform
import sys

from ludus.errors import UserError, did_you_mean
from ludus_nemo_gym import commands
from ludus_nemo_gym.entry_points import Arguments, print_columns, run_and_exit, wants_help
from ludus_nemo_gym.gym_flags import SEARCH, SHORT, Flag, in_flags, translate
from ludus_nemo_gym.gym_subcommands import JSON, SUBCOMMANDS, Subcommand, function_of
from ludus_nemo_gym.listing import FILTERS, KINDS, show


def main(arguments: Arguments | None = None) -> None:
    """The entry point."""
    run_and_exit(_run, sys.argv[1:] if arguments is None else arguments)


def _run(arguments: Arguments) -> int:
    if "--version" in arguments:
        return _version("--json" in arguments)
    words = [word for word in arguments[:2] if not word.startswith("-")]
    if words[:1] in (["list"], ["search"]):
        return _list(words[0], arguments[1:])
    name = " ".join(words)
    if name not in SUBCOMMANDS:
        return _overview(words)
    chosen = SUBCOMMANDS[name]
    if wants_help(arguments):
        return _help(name, chosen)
    translated = translate(arguments[2:], chosen.flags)
    if translated.words:
        raise UserError(
            f"gym {name}: {translated.words[0][:60]} is neither a flag nor key=value", f"Try: gym {name} --help"
        )
    try:
        return chosen.run(translated.overrides)
    except UserError as error:
        raise UserError(in_flags(str(error), chosen.flags)) from error


def _list(word: str, arguments: Arguments) -> int:
    """`gym list KIND [NAME]` and `gym search [KIND] QUERY`."""
    if wants_help(arguments):
        print(f"gym list {'|'.join(KINDS)} [NAME] [--json]\ngym search [KIND] QUERY [--json]")
        print(
            f"Filters: {', '.join(f'--{name} VALUE' for name in FILTERS)}. Example: gym list environments --domain math"
        )
        return 0
    flags = {**JSON, **SEARCH, **{f"--{name}": Flag(name) for name in FILTERS}}
    translated = translate(arguments, flags)
    filters = {
        key[2:]: value[1:-1]
        for key, _, value in (override.partition("=") for override in translated.overrides)
        if value
    }
    words = translated.words
    kind = words.pop(0) if words and (words[0] in KINDS or word == "list") else "environments"
    if kind not in KINDS:
        raise UserError(f"gym {word}: unknown kind {kind[:60]}", did_you_mean(kind, KINDS))
    if len(words) != 1 and (word == "search" or words):
        raise UserError(f"gym {word} takes one {'QUERY' if word == 'search' else 'NAME'}", f"Try: gym {word} --help")
    name, query = (words[0] if words else None, None) if word == "list" else (None, words[0])
    return show(kind, name, query, filters, "--json" in translated.overrides)


def _version(as_json: bool) -> int:
    from importlib.metadata import version

    import ludus
    from ludus.cli.screen import safe_json

    if not as_json:
        return function_of(commands.ng_version)([])
    versions = {"ludus": ludus.__version__, "ludus_nemo_gym": version("ludus-nemo-gym"), "nemo_gym": None}
    print(safe_json({**versions, "python": platform.python_version(), "python_path": sys.executable}))
    return 0


def _overview(words: Arguments) -> int:
    """List the subcommands, all or those of a group. A word that is no group is a mistake."""
    groups = sorted({name.partition(" ")[0] for name in SUBCOMMANDS} | {"list", "search"})
    if words and words[0] not in groups:
        raise UserError(f"gym has no command {words[0][:60]}", did_you_mean(words[0], groups))
    group = [name for name in SUBCOMMANDS if not words or name.startswith(f"{words[0]} ")]
    if len(words) > 1:
        known = [name.partition(" ")[2] for name in group]
        raise UserError(f"gym {words[0]} has no command {words[1][:60]}", did_you_mean(words[1], known))
    more = [("gym list KIND", "List what a configuration can name."), ("gym search QUERY", "Search it.")]
    print_columns([(f"gym {name}", SUBCOMMANDS[name].about) for name in group] + ([] if words else more))
    print(f"\nExample: {SUBCOMMANDS[group[0]].example}\nPrint the help of a command with --help.")
    return 0


def _help(name: str, chosen: Subcommand) -> int:
    print(f"{chosen.about}\n\nExample: {chosen.example}\n")
    short = {long: letter for letter, known in SHORT.items() for long in known}
    rows = []
    for key, flag in chosen.flags.items():
        both = f"{key}, {short[key]}" if key in short else key
        rows.append((both if flag.kind in ("switch", "json") else f"{both} VALUE", flag.help))
    print_columns(rows)
    print("\nAny setting can be written as key=value after the flags.")
    return 0
