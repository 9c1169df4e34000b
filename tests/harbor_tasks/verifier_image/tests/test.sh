#!/bin/bash
if [ "$(cat answers/number.txt)" = "$(cat /expected)" ] && [ -s answers/notes.txt ] && [ ! -e answers/x.tmp ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
