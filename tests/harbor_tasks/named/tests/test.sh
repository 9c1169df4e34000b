#!/bin/bash
right=0
[ "$(cat colour)" = "$WANTED" ] && right=1
echo "{\"reward\": $right, \"style\": 0.5}" > /logs/verifier/reward.json
echo 0 > /logs/verifier/reward.txt
