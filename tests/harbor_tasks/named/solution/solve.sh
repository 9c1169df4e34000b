#!/bin/bash
echo blue > colour
