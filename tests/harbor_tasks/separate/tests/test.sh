#!/bin/bash
if [ "$(sh /app/sum.sh 1 2 3)" = 6 ] && [ "$(sh /app/sum.sh 40 2)" = 42 ] && [ ! -e /app/other ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
