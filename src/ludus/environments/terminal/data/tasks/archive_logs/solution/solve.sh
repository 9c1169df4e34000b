#!/bin/bash
cd /app/logs
find . -type f -name '*.log' ! -newermt '2024-03-01' -print0 > /tmp/list
tar --null -T /tmp/list -czf /app/old-logs.tar.gz
xargs -0 rm -- < /tmp/list
