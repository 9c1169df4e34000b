#!/bin/bash
cd /app
find site -type d -exec chmod 755 {} +
find site -type f -print0 | while IFS= read -r -d '' file; do
  case "$file" in
    *.key|*.pem) chmod 600 "$file";;
    *) if [ "$(head -c 2 "$file")" = '#!' ]; then chmod 755 "$file"; else chmod 644 "$file"; fi;;
  esac
done
