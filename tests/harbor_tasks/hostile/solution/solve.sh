#!/bin/bash
echo contained > /app/state.txt
