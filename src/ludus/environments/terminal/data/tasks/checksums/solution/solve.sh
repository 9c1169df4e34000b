#!/bin/bash
cd /app
python3 - <<'P'
import hashlib, os, shutil
from pathlib import Path
def digest(path): return hashlib.sha256(Path(path).read_bytes()).hexdigest()
listed = {line[66:]: line[:64] for line in Path("MANIFEST").read_text().splitlines()}
present = {str(path) for path in Path("release").rglob("*") if path.is_file()}
bad = {path: "missing" if path not in present else "damaged" for path, sum in listed.items() if path not in present or digest(path) != sum}
lines = [f"{kind} {path}" for path, kind in bad.items()] + [f"unlisted {path}" for path in present - set(listed)]
Path("problems.txt").write_text("".join(line + "\n" for line in sorted(lines)))
copies = {digest(path): path for path in Path("backup").rglob("*") if path.is_file()}
for path in bad:
    if listed[path] in copies:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.copyfile(copies[listed[path]], path)
P
