#!/bin/sh
wc -w < "$WORDS"
