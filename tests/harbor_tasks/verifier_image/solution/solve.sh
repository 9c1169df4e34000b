#!/bin/bash
echo 7 > /app/answers/number.txt
echo done > /app/notes.txt
touch /app/answers/x.tmp
