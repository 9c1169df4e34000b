"""`python tools/release`: builds the release twice, checks it in clean environments, and lists its dependencies.

    python tools/release                          # everything: the extra `train` alone installs gigabytes
    python tools/release --extras math,mcp        # only these extras
    python tools/release --extras none

Builds the last commit, and refuses it if CHANGELOG.md has no section for its version. Every extra is installed alone
and used (`uses/EXTRA.sh`); one that this machine cannot have is not checked, and the table at the end says why. Leaves
in `dist/`: wheels, source archives, SHA256SUMS, LICENCES.md, sbom.cdx.json, checks.json, and in `dist/checked` what an
interrupted release need not check again.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from bill import cyclonedx, licence_table, to_look_at, with_extras
from building import CORE, PROJECTS, ReleaseError, build, check_changelog, commit, commit_time, unpack, version_of
from checking import CleanEnvironment, check_core, check_embedded_model, check_packages, extras
from inventory import Package
from kept import Kept
from report import Report
from uses import Use, check_with, check_without, read_use

ROOT = Path(__file__).parents[2]

#: How many checks _check_wheels and _check_archives print.
_DISTRIBUTION_CHECKS = 4


def main(arguments: list[str]) -> None:
    """Make the release; a failed check is one line and exit code 1."""
    parser = argparse.ArgumentParser(
        prog="tools/release", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    parser.add_argument("--extras", default="all", help="all, none, or names with commas between them")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # temporary folders of gigabytes are removed then, too
    try:
        release(ROOT, given.output, chosen(ROOT, given.extras))
    except ReleaseError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("\ninterrupted: run it again, and extras that passed for the same wheel are not checked again")


def release(root: Path, dist: Path, names: list[str]) -> None:
    """Build, check and describe the release into `dist`."""
    uses = [read_use(name) for name in names]
    version = version_of(root)
    check_changelog(root, version)
    report = Report(dist / "checks.json", _DISTRIBUTION_CHECKS + len(uses))
    report.say(f"ludus-gym {version}, commit {commit(root)}")
    digests = build(root, dist)
    (dist / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items())))
    for name, digest in sorted(digests.items()):
        report.say(f"  {digest[:12]}  {(dist / name).stat().st_size / 1e6:5.1f} MB  {name}")
    report.say("two builds gave the same bytes\n")
    with tempfile.TemporaryDirectory() as folder:
        source = unpack(dist / f"ludus_gym-{version}.tar.gz", Path(folder) / "source")
        clean = CleanEnvironment(Path(folder))
        core = _check_wheels(dist, version, uses, source, clean, report)
        _check_archives(dist, version, report)
        kept = Kept(dist / "checked", *(_wheel(dist, version, project) for project in PROJECTS))
        projects = extras(root)
        of_extras = {
            use.extra: _check_extra(_wheel(dist, version, projects[use.extra]), use, source, clean, kept, report)
            for use in uses
        }
    _describe(root, with_extras(core, of_extras), dist, version, report)
    report.end(sorted(extras(root)))


def _check_wheels(
    dist: Path, version: str, uses: list[Use], source: Path, clean: CleanEnvironment, report: Report
) -> list[Package]:
    """Check the wheels, and that no extra's script works without the extra. Returns the core's packages."""
    core: list[Package] = []
    with report.check("wheel", "mcqa, an environment of `ludus new` and a recipe are collected with a script") as check:
        clean.install(str(_wheel(dist, version)))
        clean.save()
        core = clean.packages()
        check.measure(clean, len(core))
        check_core(clean)
    for use in uses:
        with report.check(f"without {use.extra}", f"says: {use.without}", quiet=True):
            check_without(use, clean, source)
    with report.check("embedded model", "answers a question of mcqa, installed as the README says"):
        check_embedded_model(clean)
    with report.check("packages", "NeMo Gym's commands run, its modules are there, and the core finds the others'"):
        clean.install(*(str(_wheel(dist, version, project)) for project in PROJECTS if project != CORE))
        check_packages(clean, version)
    return core


def _check_archives(dist: Path, version: str, report: Report) -> None:
    """Check the source archives in an environment of their own."""
    with (
        report.check("source archives", "installed with pip, the same as the wheel") as check,
        tempfile.TemporaryDirectory() as folder,
    ):
        clean = CleanEnvironment(Path(folder))
        clean.install(*(str(dist / f"{name}-{version}.tar.gz") for name in PROJECTS.values()))
        check.measure(clean, len(clean.packages()))
        check_core(clean)
        check_packages(clean, version)


def _check_extra(
    wheel: Path, use: Use, source: Path, clean: CleanEnvironment, kept: Kept, report: Report
) -> list[Package]:
    """Install one extra beside nothing but the core, and run its script, unless an earlier run did.

    Returns what is installed.
    """
    found: list[Package] = []
    with report.check(f"extra {use.extra}", use.shows) as check:
        earlier = kept.find(use, check)
        if earlier is not None:
            return earlier
        clean.restore()
        clean.install_if_possible(f"{wheel}[{use.extra}]")
        found = clean.packages()
        check.measure(clean, len(found))
        check_with(use, clean, source)
        kept.keep(use, check, found)
    return found


def _describe(root: Path, found: list[Package], dist: Path, version: str, report: Report) -> None:
    """Write the licences and the bill of materials of what the wheel and its extras bring with them."""
    when = datetime.fromtimestamp(int(commit_time(root)), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    (dist / "LICENCES.md").write_text(licence_table(found))
    (dist / "sbom.cdx.json").write_text(json.dumps(cyclonedx(found, "ludus-gym", version, when), indent=1) + "\n")
    look = [f"  {each['name']} {each['version']}: {each['licence']}" for each in to_look_at(found) if each["licence"]]
    report.say(f"\n{len(found)} packages in LICENCES.md and sbom.cdx.json; their licences are permissive, except:")
    report.say("\n".join(look or ["  none"]))
    with report.check("licences", "every package has one", quiet=True):
        unknown = [f"{each['name']} {each['version']}" for each in found if not each["licence"]]
        if unknown:
            raise ReleaseError(f"no licence is declared by {', '.join(unknown)}: look it up, and add it to licences.py")


def _wheel(dist: Path, version: str, project: str = CORE) -> Path:
    return dist / f"{PROJECTS[project]}-{version}-py3-none-any.whl"


def chosen(root: Path, given: str) -> list[str]:
    """The extras that a person asked for."""
    known = extras(root)
    if given in ("all", "none"):
        return sorted(known) if given == "all" else []
    wanted = [name.strip() for name in given.split(",")]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise ReleaseError(f"there is no extra {unknown[0]}. Known: {', '.join(sorted(known))}")
    return wanted


if __name__ == "__main__":
    main(sys.argv[1:])
