"""A hub of models in the memory of the test's own process, that speaks as much of the protocol as models need."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


@dataclass
class FakeHub:
    """What is on the hub.

    Attributes:
        files: contents by repository, revision and name.
        private: the repositories that are.
        requests: method and path of each that came.
        token: that may write, and read what is private.
        failing: the status that every answer has, where this is no 0.
    """

    url: str = ""
    files: dict[str, dict[str, dict[str, bytes]]] = field(default_factory=dict)
    private: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)
    token: str = "secret"
    failing: int = 0

    def put(self, repository: str, files: dict[str, bytes], revision: str = "main") -> None:
        self.files.setdefault(repository, {}).setdefault(revision, {}).update(files)

    def commit_of(self, repository: str, revision: str) -> str | None:
        """The commit that a revision is, which follows from its contents."""
        for name, files in self.files[repository].items():
            digest = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
            if revision in (name, digest):
                return digest
        return None

    def files_at(self, repository: str, revision: str) -> dict[str, bytes]:
        commit = self.commit_of(repository, revision)
        return next(
            files for name, files in self.files[repository].items() if self.commit_of(repository, name) == commit
        )


@contextmanager
def running_hub() -> Iterator[FakeHub]:
    """A hub that answers while the block lasts."""
    hub = FakeHub()

    class Handler(_Handler):
        content = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    content: FakeHub

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        self._serve()

    def do_HEAD(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(self.path).path)
        self.content.requests.append(f"{self.command} {path}")
        if self.content.failing:
            self._answer(self.content.failing, {"error": "no service today"})
        elif path == "/api/repos/create":
            self._create(json.loads(self.body))
        elif path == "/api/validate-yaml":  # of the head of a card
            self._answer(200, {"errors": [], "warnings": []})
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(\w+)/(.+))?", path):
            self._model(found[1], found[2] or "revision", found[3] or "main")
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._file(*found.groups())
        else:
            self._answer(404, {"error": "not found"})

    def _knows(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {self.content.token}"

    def _create(self, asked: dict) -> None:
        name = f"{asked['organization']}/{asked['name']}"
        if not self._knows():
            self._answer(401 if "Authorization" not in self.headers else 403, {"error": "Forbidden"})
        elif name in self.content.files:
            self._answer(409, {"error": "it is there", "url": f"{self.content.url}/{name}"})
        else:
            self.content.put(name, {".gitattributes": b""})
            if asked.get("private") or asked.get("visibility") == "private":
                self.content.private.add(name)
            self._answer(200, {"url": f"{self.content.url}/{name}", "name": name, "id": name})

    def _is_hidden(self, name: str, revision: str) -> bool:
        """Whether the answer is that there is none; it is then given."""
        if name not in self.content.files or (name in self.content.private and not self._knows()):
            self._answer(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
        elif self.content.commit_of(name, revision) is None:
            self._answer(404, {"error": "Invalid rev id"}, {"X-Error-Code": "RevisionNotFound"})
        else:
            return False
        return True

    def _model(self, name: str, what: str, revision: str) -> None:
        if self._is_hidden(name, revision):
            return
        files = self.content.files_at(name, revision)
        commit = self.content.commit_of(name, revision)
        if what == "revision":
            self._answer(200, {"id": name, "sha": commit, "siblings": [{"rfilename": each} for each in files]})
        elif what == "tree":
            self._answer(200, [_entry(each, content) for each, content in files.items()])
        elif what == "preupload":
            asked = [each["path"] for each in json.loads(self.body)["files"]]
            self._answer(
                200, {"files": [{"path": each, "uploadMode": "regular", "shouldIgnore": False} for each in asked]}
            )
        elif what == "commit":
            if not self._knows():
                self._answer(403, {"error": "Forbidden"})
                return
            for line in self.body.splitlines():
                part = json.loads(line)
                if part["key"] == "file":
                    files[part["value"]["path"]] = base64.b64decode(part["value"]["content"])
            commit = self.content.commit_of(name, revision)
            url = f"{self.content.url}/{name}/commit/{commit}"
            self._answer(200, {"success": True, "commitOid": commit, "commitUrl": url, "hookOutput": ""})

    def _file(self, name: str, revision: str, file: str) -> None:
        if self._is_hidden(name, revision):
            return
        content = self.content.files_at(name, revision).get(file)
        if content is None:
            self._answer(404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound"})
            return
        head = {"ETag": f'"{_blob(content)}"', "X-Repo-Commit": str(self.content.commit_of(name, revision))}
        self._send(200, content, {**head, "Accept-Ranges": "none"})

    def _answer(self, status: int, said: object, head: dict[str, str] | None = None) -> None:
        self._send(status, json.dumps(said).encode(), {"Content-Type": "application/json", **(head or {})})

    def _send(self, status: int, content: bytes, head: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **head}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _entry(name: str, content: bytes) -> dict[str, object]:
    return {"type": "file", "path": name, "size": len(content), "oid": _blob(content)}


def _blob(content: bytes) -> str:
    """What git calls these contents."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
