#!/bin/bash
echo blue > /run/ask
read -r number < /run/answer
if [ "$(cat /app/blue.txt)" = "$number" ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
