#!/bin/sh
# Answers questions for as long as the box is open.
rm -f /run/ask /run/answer
mkfifo /run/answer /run/ask
(while read -r name < /run/ask; do
    case "$name" in blue) echo 17 ;; *) echo 0 ;; esac > /run/answer
done) &
exec "$@"
