#!/bin/bash
tool > count.txt
