#!/bin/bash
echo blue > /run/ask
cat /run/answer > /app/blue.txt
