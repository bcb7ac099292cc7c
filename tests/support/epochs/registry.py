"""A schema registry in the test's process, with the part of Confluent's REST interface that clients use."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import fastavro


class Refused(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(status, {"error_code": code, "message": message})


@dataclass
class Registry:
    """Schemas by id, and each subject's versions. Equal schemas share an id, as in Confluent's.

    Attributes:
        account: the required ``user:password``.
        broken: the answers to the next requests: an HTTP status, bytes that are not HTTP or incomplete, or None to
            close the connection without an answer.
        compatibility: NONE or BACKWARD. With BACKWARD a subject accepts no second schema, which is stricter than
            Confluent's registry.
    """

    first_id: int = 1
    account: str = ""
    broken: list[int | bytes | None] = field(default_factory=list)
    compatibility: str = "BACKWARD"
    texts: list[str] = field(default_factory=list)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    url: str = ""

    def answer(self, method: str, path: list[str], body: Any) -> Any:
        match method, path:
            case "POST", ["subjects", subject, "versions"]:
                return {"id": self._register(subject, body["schema"])}
            case "POST", ["subjects", subject]:
                return self._version(subject, self._id(body["schema"]))
            case "GET", ["subjects"]:
                return sorted(self.subjects)
            case "GET", ["subjects", subject, "versions"]:
                return list(range(1, len(self._known(subject)) + 1))
            case "GET", ["subjects", subject, "versions", number]:
                versions = self._known(subject)
                at = len(versions) if number == "latest" else int(number)
                return self._version(subject, versions[at - 1])
            case "GET", ["schemas", "ids", number]:
                at = int(number) - self.first_id
                if not 0 <= at < len(self.texts):
                    raise Refused(404, 40403, "Schema not found")
                return {"schema": self.texts[at]}
            case "GET", ["config", *_]:
                return {"compatibilityLevel": self.compatibility}
            case "PUT", ["config", *_]:
                self.compatibility = body["compatibility"]
                return body
        raise Refused(404, 404, "HTTP 404 Not Found")

    def _register(self, subject: str, text: str) -> int:
        try:
            fastavro.parse_schema(json.loads(text))
        except Exception as error:
            raise Refused(422, 42201, f"Invalid schema: {error}") from error
        versions = self.subjects.setdefault(subject, [])
        if text not in self.texts:
            if versions and self.compatibility != "NONE":
                raise Refused(409, 409, "Schema being registered is incompatible with an earlier schema")
            self.texts.append(text)
        number = self._id(text)
        if number not in versions:
            versions.append(number)
        return number

    def _id(self, text: str) -> int:
        if text not in self.texts:
            raise Refused(404, 40403, "Schema not found")
        return self.texts.index(text) + self.first_id

    def _known(self, subject: str) -> list[int]:
        if subject not in self.subjects:
            raise Refused(404, 40401, f"Subject '{subject}' not found.")
        return self.subjects[subject]

    def _version(self, subject: str, number: int) -> dict[str, Any]:
        version = self._known(subject).index(number) + 1
        text = self.texts[number - self.first_id]
        return {"subject": subject, "id": number, "version": version, "schema": text}


class _Handler(BaseHTTPRequestHandler):
    registry: Registry

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, answer = 200, None
        registry = self.registry
        registry.requests.append(f"{self.command} {self.path}")
        wanted = "Basic " + base64.b64encode(registry.account.encode()).decode()
        try:
            if registry.account and self.headers.get("Authorization") != wanted:
                raise Refused(401, 401, "Unauthorized")
            if registry.broken:
                how = registry.broken.pop(0)
                if not isinstance(how, int):
                    self.wfile.write(how or b"")
                    self.close_connection = True
                    return
                raise Refused(how, how * 100, "not just now")
            path = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
            answer = registry.answer(self.command, path, json.loads(body) if body else None)
        except Refused as refused:
            status, answer = refused.args
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = _handle

    def log_message(self, *_: object) -> None:
        """Write nothing to stderr."""


@contextmanager
def running(registry: Registry | None = None) -> Iterator[Registry]:
    """Yield a registry that listens on 127.0.0.1."""
    registry = registry or Registry()
    handler = type("Handler", (_Handler,), {"registry": registry})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    account = f"{registry.account}@" if registry.account else ""
    registry.url = f"http://{account}127.0.0.1:{server.server_port}"
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
