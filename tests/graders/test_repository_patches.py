"""Patches and trees: what is made is applied again, and nothing leads outside the folder."""

from __future__ import annotations

import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandboxes import needs, opened

from ludus.graders.repository import PatchError, apply_patch, is_protected, make_patch
from ludus.graders.repository.trees import TreeTooLarge, read_tree, tree_of, with_change

texts = st.lists(st.sampled_from(["a", "b", "", "\t", "+x", "-y", "@@", "--- a/x", "é\r"]), max_size=12).flatmap(
    lambda lines: st.sampled_from(["\n".join(lines), "\n".join(lines) + "\n"])
)
trees = st.dictionaries(
    st.sampled_from(["a.py", "b/c.py", "b/d e.txt"]), texts.map(str.encode).filter(bool), max_size=3
)


@given(trees, trees)
def test_a_patch_turns_one_tree_into_the_other(before: dict[str, bytes], after: dict[str, bytes]):
    assert apply_patch(before, make_patch(before, after)) == after


def test_a_hunk_is_found_where_the_lines_have_moved():
    before = {"a": b"1\n2\n3\n4\n5\n6\n7\n8\n"}
    patch = make_patch(before, {"a": b"1\n2\n3\n4\nfive\n6\n7\n8\n"})
    assert apply_patch({"a": b"0\n0\n" + before["a"]}, patch) == {"a": b"0\n0\n1\n2\n3\n4\nfive\n6\n7\n8\n"}


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-other\n+new\n", "hunk 1 does not fit x"),
        ("--- a/y\n+++ b/y\n@@ -1 +1 @@\n-old\n+new\n", "the patch changes y, which does not exist"),
        ("--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+new\n", "the patch adds x, which exists already"),
        ("--- a/x\n+++ b/x\n@@ -1,2 +1 @@\n-old\n", "a hunk of x is cut short"),
        ("--- a/x\n+++ b/../x\n@@ -1 +1 @@\n-old\n+new\n", "a path that is not allowed"),
        ("--- /dev/null\n+++ b//etc/passwd\n@@ -0,0 +1 @@\n+new\n", "a path that is not allowed"),
        ("--- a/x\n+++ b/x\n", "no hunk for x"),
        (f"--- a/x\n+++ b/x\n@@ -{'9' * 5000} +1 @@\n-old\n+new\n", "no hunk for x"),
        ("rename from x\nrename to y\n", "not supported"),
    ],
)
def test_a_patch_that_does_not_fit_is_refused(patch: str, message: str):
    with pytest.raises(PatchError, match=message):
        apply_patch({"x": b"old\n"}, patch)


@given(st.text(st.sampled_from("-+ @/ab0123456789,\n\\"), max_size=200))
def test_any_text_is_applied_or_refused(text: str):
    try:
        assert isinstance(apply_patch({"a": b"a\nb\n"}, text), dict)
    except PatchError:
        pass


@pytest.mark.parametrize(
    "path",
    ["conftest.py", "a/conftest.py", "pytest.ini", "tests/x.txt", "a/test_b.py", "b_test.py", "sitecustomize.py"],
)
def test_files_that_decide_how_tests_run_are_protected(path: str):
    assert is_protected(path)
    assert with_change({path: b"old"}, {path: b"new", "a.py": b"1"}) == {path: b"old", "a.py": b"1"}
    assert with_change({path: b"old"}, {}) == {path: b"old"}
    assert with_change({}, {path: b"new"}) == {}


def test_plain_source_files_are_not_protected():
    assert not any(map(is_protected, ["a.py", "src/contest.py", "latest.py", "pytest_like/plugin.py", "setup.py"]))


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as file:
        for entry, data in members:
            entry.size = len(data)
            file.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def test_links_and_paths_that_lead_elsewhere_are_left_out_of_a_tree():
    link = tarfile.TarInfo("repo/link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    names = ["./repo/a.py", "repo/../b.py", "/repo/c.py", "other/d.py", "repo/__pycache__/e.pyc", "repo/.git/config"]
    given = archive((link, b""), *((tarfile.TarInfo(name), b"1") for name in names))
    assert tree_of(given, "repo") == {"a.py": b"1"}


def test_a_tree_that_is_too_large_is_refused():
    with pytest.raises(TreeTooLarge):
        tree_of(archive(*((tarfile.TarInfo(f"repo/{n}"), b"") for n in range(5001))), "repo")


def test_hard_links_of_an_archive_are_files_with_the_content_that_they_share():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:

        def add(name: str, kind: bytes, link: str = "", data: bytes = b"") -> None:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, link, len(data)
            archive.addfile(member, io.BytesIO(data))

        add("./backup/a.py", tarfile.REGTYPE, data=b"shared")
        add("./repo/a.py", tarfile.LNKTYPE, "./backup/a.py")
        add("./repo/b.py", tarfile.LNKTYPE, "./repo/a.py")
        add("./repo/soft.py", tarfile.SYMTYPE, "/etc/passwd")
        add("./repo/of_soft.py", tarfile.LNKTYPE, "./repo/soft.py")
        add("./repo/nowhere.py", tarfile.LNKTYPE, "../../etc/passwd")
        add("./repo/itself.py", tarfile.LNKTYPE, "./repo/itself.py")
    assert tree_of(buffer.getvalue(), "repo") == {"a.py": b"shared", "b.py": b"shared"}


def test_the_bytes_of_hard_links_are_counted_for_each_name():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo("./repo/a")
        member.size = 1 << 20
        archive.addfile(member, io.BytesIO(bytes(1 << 20)))
        for number in range(40):
            member = tarfile.TarInfo(f"./repo/{number}")
            member.type, member.linkname = tarfile.LNKTYPE, "./repo/a"
            archive.addfile(member)
    with pytest.raises(TreeTooLarge):
        tree_of(buffer.getvalue(), "repo")


@needs("oci")
async def test_a_tree_whose_box_forges_its_archive_is_the_models_doing():
    for forged in ("#!/bin/sh\necho no archive\n", "#!/bin/sh\nexit 3\n", "#!/bin/sh\nhead -c 2000 /dev/zero\n"):
        async with opened("oci") as sandbox:
            await sandbox.exec("mkdir repo; echo a > repo/a")
            await sandbox.write("/bin/tar", forged.encode(), executable=True)
            if "zero" in forged:  # an archive without members
                assert await read_tree(sandbox, "repo") == {}
                continue
            with pytest.raises(TreeTooLarge):
                await read_tree(sandbox, "repo")
