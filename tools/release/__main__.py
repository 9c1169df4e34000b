"""`python tools/release`: builds the release twice, checks it in clean environments, and lists its dependencies.

    python tools/release                          # everything: the extra `train` alone installs gigabytes
    python tools/release --extras math,mcp        # only these extras
    python tools/release --extras none

Leaves in `dist/`: wheels, source archives, SHA256SUMS, LICENCES.md, sbom.cdx.json and checks.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from building import ReleaseError, build, commit_time
from checking import check_embedded_model, check_extra, check_wheel, extras
from inventory import Package, cyclonedx, licence_table, with_extras

ROOT = Path(__file__).parents[2]


def main(arguments: list[str]) -> None:
    """Make the release; a failed check is one line and exit code 1."""
    parser = argparse.ArgumentParser(prog="tools/release", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    parser.add_argument("--extras", default="all", help="all, none, or names with commas between them")
    given = parser.parse_args(arguments)
    try:
        release(given.output, _chosen(given.extras))
    except ReleaseError as error:
        sys.exit(f"error: {error}")


def release(dist: Path, chosen: list[str]) -> None:
    """Build, check and describe the release into `dist`."""
    digests = build(ROOT, dist)
    (dist / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items())))
    _say(f"built twice with the same digests: {', '.join(sorted(digests))}")
    wheel = next(dist / name for name in digests if name.startswith("ludus_gym-") and name.endswith(".whl"))
    checks: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        clean = check_wheel(wheel, Path(folder))
        checks["wheel"] = "ok"
        core = clean.packages()
        checks["embedded model"] = check_embedded_model(clean)
    _say(f"wheel in a clean environment: ok; embedded model: {checks['embedded model']}")
    of_extras = []
    for name in chosen:
        checks[f"extra {name}"], installed = check_extra(wheel, name, extras(ROOT)[name])
        of_extras.append(installed)
        _say(f"extra {name}: {checks[f'extra {name}']}")
    _describe(with_extras(core, of_extras), dist, wheel.name.split("-")[1])
    (dist / "checks.json").write_text(json.dumps(checks, indent=1) + "\n")
    failed = [name for name, result in checks.items() if result.startswith("failed")]
    if failed:
        raise ReleaseError(f"these checks failed, see checks.json: {', '.join(failed)}")


def _describe(found: list[Package], dist: Path, version: str) -> None:
    """Write the licences and the bill of materials of what the wheel and its extras bring with them."""
    when = datetime.fromtimestamp(int(commit_time(ROOT)), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    (dist / "LICENCES.md").write_text(licence_table(found))
    (dist / "sbom.cdx.json").write_text(json.dumps(cyclonedx(found, "ludus-gym", version, when), indent=1) + "\n")


def _chosen(given: str) -> list[str]:
    known = extras(ROOT)
    if given in ("all", "none"):
        return sorted(known) if given == "all" else []
    wanted = [name.strip() for name in given.split(",")]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise ReleaseError(f"there is no extra {unknown[0]}. Known: {', '.join(sorted(known))}")
    return wanted


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
