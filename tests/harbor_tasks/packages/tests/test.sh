#!/bin/bash
if grep -q "a  b" /app/table.txt && python3 -c "import tabulate"; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
