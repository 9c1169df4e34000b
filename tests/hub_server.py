"""A hub on this machine: the routes of the Hugging Face hub that its client calls for datasets, over HTTP.

Repositories are kept in memory. Large and binary files are uploaded by Git LFS: the commit names only their digest.
`half`, `hangs`, `broken_json`, `forgets_objects`, `moved_to`, `endless`, `unsized` and `tags` make the hub misbehave.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

TOKEN = "hf_a_token_of_the_test"


@dataclass
class Repository:
    """The files of each commit, the last commit last."""

    private: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    listed: list[str] | None = None  #: the files that the hub claims to have

    def commit(self, files: dict[str, bytes]) -> str:
        """Add or replace files. Returns the new commit."""
        content = {**(self.commits[self.head] if self.commits else {}), **files}
        parts = (f"{len(self.commits)} {name} ".encode() + data for name, data in sorted(content.items()))
        name = hashlib.sha1(b"".join(parts)).hexdigest()
        self.commits[name] = content
        return name

    @property
    def head(self) -> str:
        return list(self.commits)[-1]


@dataclass
class Hub:
    """What the hub holds, how it misbehaves, and which requests it got."""

    url: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    half: int = 0  #: how many of the next downloads end in the middle
    hangs: threading.Event = field(default_factory=threading.Event)  #: set: the hub answers
    broken_json: bool = False
    forgets_objects: bool = False  #: what is uploaded by LFS does not arrive
    moved_to: str = ""  #: the URL of another hub, to which every request is redirected
    endless: bool = False  #: files go on after their announced size
    unsized: bool = False  #: no size of a file is announced
    tags: list[str] = field(default_factory=list)  #: the ETags of the next replies with a file
    lfs_from: int = 10_000_000  #: files of this size and more travel by LFS
    objects: dict[str, bytes] = field(default_factory=dict)  #: what was uploaded by LFS, by digest
    requests: list[str] = field(default_factory=list)
    ranges: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)  #: the Authorization headers of all requests

    def add(self, name: str, files: dict[str, bytes], private: bool = False) -> str:
        """A repository with one commit more. Returns the commit."""
        return self.repositories.setdefault(name, Repository(private)).commit(files)


@contextmanager
def running_hub() -> Iterator[Hub]:
    """A hub that listens on a free port until the block ends."""
    hub = Hub()
    hub.hangs.set()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        hub.hangs.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._route()

    def do_GET(self) -> None:
        self._route()

    def do_POST(self) -> None:
        self._route()

    def do_PUT(self) -> None:
        self._route()

    def _route(self) -> None:
        hub, url = self.hub, urlsplit(self.path)
        hub.requests.append(f"{self.command} {url.path}")
        hub.keys += [self.headers["Authorization"]] if "Authorization" in self.headers else []
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        hub.hangs.wait()
        if hub.moved_to:
            self._bytes(b"", 302, {"Location": f"{hub.moved_to}{self.path}"})
            return
        parts = [unquote(part) for part in url.path.strip("/").split("/")]
        if parts[:3] == ["api", "repos", "create"]:
            self._create(json.loads(body))
        elif parts[:2] == ["api", "validate-yaml"]:
            self._json({"errors": [], "warnings": []})
        elif parts == ["api", "datasets"]:
            self._list(parse_qs(url.query))
        elif parts[:2] == ["api", "datasets"]:
            self._repository("/".join(parts[2:4]), parts[4:], body)
        elif parts[0] == "datasets" and parts[-3:] == ["lfs", "objects", "batch"]:
            self._lfs_batch(json.loads(body))
        elif parts[0] == "lfs":
            self._lfs(parts[1], body)
        elif parts[0] == "datasets" and "resolve" in parts:
            at = parts.index("resolve")
            self._file("/".join(parts[1:at]), parts[at + 1], "/".join(parts[at + 2 :]))
        else:
            self._json({"error": "no such route"}, 404)

    def _may_see(self, repository: Repository) -> bool:
        return not repository.private or self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _found(self, name: str, revision: str) -> tuple[Repository, str] | None:
        repository = self.hub.repositories.get(name)
        if repository is None or not self._may_see(repository):
            self._json({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
            return None
        commit = repository.head if revision in ("main", "") else revision
        if commit not in repository.commits:
            self._json({"error": "Revision not found"}, 404, {"X-Error-Code": "RevisionNotFound"})
            return None
        return repository, commit

    def _repository(self, name: str, rest: list[str], body: bytes) -> None:
        if self.hub.broken_json:
            return self._bytes(b'{"sha": "ab', 200, {"Content-Type": "application/json"})
        found = self._found(name, rest[1] if len(rest) > 1 else "main")
        if found is None:
            return None
        repository, commit = found
        if rest[:1] == ["preupload"]:
            return self._json({"files": [self._upload_mode(each) for each in json.loads(body)["files"]]})
        if rest[:1] == ["commit"]:
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                return self._json({"error": "not allowed"}, 403)
            lines = [json.loads(line) for line in body.splitlines()]
            files = {
                each["value"]["path"]: base64.b64decode(each["value"]["content"])
                for each in lines
                if each["key"] == "file"
            }
            named = {each["value"]["path"]: each["value"]["oid"] for each in lines if each["key"] == "lfsFile"}
            if missing := set(named.values()) - self.hub.objects.keys():
                return self._json({"error": f"unknown objects {missing}"}, 400)
            files |= {path: self.hub.objects[digest] for path, digest in named.items()}
            commit = repository.commit(files)
            return self._json({"commitUrl": f"{self.hub.url}/datasets/{name}/commit/{commit}", "commitOid": commit})
        return self._json(_info(name, repository, commit))

    def _upload_mode(self, file: dict[str, Any]) -> dict[str, Any]:
        large = file["size"] >= self.hub.lfs_from or b"\0" in base64.b64decode(file["sample"])
        return {"path": file["path"], "uploadMode": "lfs" if large else "regular", "shouldIgnore": False}

    def _lfs_batch(self, asked: dict[str, Any]) -> None:
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._json({"error": "not allowed"}, 403)
        places = {"upload": f"{self.hub.url}/lfs/", "verify": f"{self.hub.url}/lfs/verify?"}
        objects = [
            each
            if each["oid"] in self.hub.objects
            else {**each, "actions": {name: {"href": place + each["oid"]} for name, place in places.items()}}
            for each in asked["objects"]
        ]
        return self._json({"transfer": "basic", "objects": objects})

    def _lfs(self, digest: str, body: bytes) -> None:
        if digest == "verify":
            whole = json.loads(body)["oid"] in self.hub.objects
            return self._json({}, 200 if whole else 404)
        if sha256(body).hexdigest() != digest:
            return self._json({"error": "these bytes have another digest"}, 400)
        if not self.hub.forgets_objects:
            self.hub.objects[digest] = body
        return self._json({})

    def _list(self, query: dict[str, list[str]]) -> None:
        author = query.get("author", [""])[0]
        search = query.get("search", [""])[0]
        seen = {name: each for name, each in self.hub.repositories.items() if self._may_see(each)}
        names = [name for name in seen if name.startswith(f"{author}/" if author else "") and search in name]
        self._json([_info(name, seen[name], seen[name].head) for name in names])

    def _create(self, given: dict[str, Any]) -> None:
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._json({"error": "who are you"}, 401)
        name = f"{given.get('organization') or 'me'}/{given['name']}"
        if name in self.hub.repositories:
            return self._json({"error": "exists", "url": f"{self.hub.url}/datasets/{name}"}, 409)
        private = bool(given.get("private")) or given.get("visibility") == "private"
        self.hub.add(name, {".gitattributes": b""}, private=private)
        return self._json({"url": f"{self.hub.url}/datasets/{name}"})

    def _file(self, name: str, revision: str, path: str) -> None:
        found = self._found(name, revision)
        if found is None:
            return None
        repository, commit = found
        content = repository.commits[commit].get(path)
        if content is None:
            return self._json({"error": "no file"}, 404, {"X-Error-Code": "EntryNotFound"})
        tag = self.hub.tags.pop(0) if self.hub.tags else hashlib.sha1(content).hexdigest()
        head = {"ETag": f'"{tag}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        start, status = 0, 200
        if given := self.headers.get("Range"):
            self.hub.ranges.append(given)
            start, status = int(given.removeprefix("bytes=").split("-")[0]), 206
            head["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        content = content[start:]
        if self.hub.half and self.command == "GET":
            self.hub.half -= 1
            return self._bytes(content, status, head, sent=len(content) // 2)
        if self.hub.endless and self.command == "GET":
            return self._without_end(content, status, head)
        return self._bytes(content, status, head)

    def _without_end(self, content: bytes, status: int, headers: dict[str, str]) -> None:
        """Send a file again and again, without a size, until the client has gone or 256 MB are sent."""
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        self.close_connection = True
        with suppress(OSError):
            for _ in range(256):
                self.wfile.write(content * (2**20 // len(content)))

    def _json(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._bytes(json.dumps(value).encode(), status, {"Content-Type": "application/json", **(headers or {})})

    def _bytes(self, content: bytes, status: int, headers: dict[str, str], sent: int | None = None) -> None:
        self.send_response(status)
        unsized = self.hub.unsized and self.command == "HEAD" and "ETag" in headers
        for key, value in {**headers, **({} if unsized else {"Content-Length": str(len(content))})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[:sent])
        if sent is not None:
            self.close_connection = True


def _info(name: str, repository: Repository, commit: str) -> dict[str, Any]:
    files = [{"rfilename": each} for each in repository.listed or repository.commits[commit]]
    card = _card(repository.commits[commit].get("README.md", b""))
    head = {"id": name, "author": name.split("/")[0], "sha": commit, "private": repository.private, "gated": False}
    return {**head, "tags": [], "downloads": 3, "siblings": files, "cardData": card}


def _card(readme: bytes) -> dict[str, Any]:
    import yaml

    parts = readme.decode().split("---\n")
    return yaml.safe_load(parts[1]) if len(parts) > 2 else {}


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub, and a cache of its own for each test."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with running_hub() as found:
        monkeypatch.setenv("HF_ENDPOINT", found.url)
        yield found
