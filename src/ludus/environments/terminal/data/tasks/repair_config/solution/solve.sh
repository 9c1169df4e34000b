#!/bin/bash
cat > /app/config.json <<'J'
{
  "host": "0.0.0.0",
  "port": 8080,
  "url": "http://example.test/a//b",
  "motto": "it's /* fine */, isn't it",
  "paths": ["/srv/a", "/srv/b"],
  "limits": {"files": 10, "ratio": 0.5}
}
J
