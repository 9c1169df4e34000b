#!/bin/sh
# Installs what tests need from the system: sandboxes, a browser, npm. As root on a machine with apt-get; elsewhere it
# says what to type. Tests that need a missing program are skipped and say so, so this never fails.
missing=
command -v bwrap > /dev/null || missing="$missing bubblewrap"
command -v runc > /dev/null || missing="$missing runc"
command -v chromium > /dev/null || command -v chromium-browser > /dev/null || command -v google-chrome > /dev/null ||
    missing="$missing chromium"
command -v npm > /dev/null || missing="$missing npm"
[ -n "$missing" ] || exit 0

if ! command -v apt-get > /dev/null; then
    echo "not installed:$missing. Tests that need them are skipped. Install them with your system's package manager"
elif [ "$(id -u)" -ne 0 ]; then
    echo "not installed:$missing. Tests that need them are skipped. To run them: sudo apt-get install -y$missing"
else
    export DEBIAN_FRONTEND=noninteractive
    echo "installing$missing"
    apt-get update -qq < /dev/null > /dev/null
    for package in $missing; do
        apt-get install -y -qq --no-install-recommends "$package" < /dev/null > /dev/null ||
            echo "$package could not be installed: tests that need it are skipped"
    done
fi
exit 0
