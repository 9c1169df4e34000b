#!/bin/bash
cp given two
