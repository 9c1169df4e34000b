#!/bin/bash
mkdir -p /logs/verifier
if python3 -I - < /tests/check.txt; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
