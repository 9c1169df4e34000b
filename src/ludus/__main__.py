"""`python -m ludus` is the `ludus` command."""

from ludus.cli import main

main()
