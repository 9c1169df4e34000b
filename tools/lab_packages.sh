#!/bin/sh
# Installs the programs of the system that environments of packages/lab need. As root on a machine with apt-get;
# elsewhere it says what to type. Environments without their program are left out and say so, so this never fails.
missing=
for package in bubblewrap:bwrap stockfish:/usr/games/stockfish coq:coqc iverilog:iverilog; do
    command -v "${package#*:}" > /dev/null || missing="$missing ${package%:*}"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get > /dev/null; then
    echo "not installed:$missing. Install them with your system's package manager"
elif [ "$(id -u)" -ne 0 ]; then
    echo "not installed:$missing. To play their environments: sudo apt-get install -y$missing"
else
    export DEBIAN_FRONTEND=noninteractive
    echo "installing$missing"
    apt-get update -qq < /dev/null > /dev/null
    for package in $missing; do
        apt-get install -y -qq --no-install-recommends "$package" < /dev/null > /dev/null ||
            echo "$package could not be installed: its environment is left out"
    done
fi
exit 0
