"""The `ludus` command, also as `python -m ludus`. Ctrl-C is one line from the first import on."""

import sys


def main() -> None:
    """Import the command line and run it."""
    try:
        from ludus.cli import main as run_command_line

        run_command_line()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
