"""Schemas in a registry that speaks Confluent's REST interface: a structure's schema becomes the id on the wire.

Subjects follow Confluent's RecordNameStrategy, since one topic holds many tables: the subject is the full name of
the record, ``<database>.<table>.s<digest>.Envelope``. Each structure has a subject of its own, so a registry's
compatibility rules never stand in the way of an ALTER TABLE.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterable
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlsplit, urlunsplit
from urllib.request import Request, urlopen

import structlog

from producer.kafka.connection import ProducerStopped
from schemas.errors import LogError, Where
from schemas.structure import TableStructure
from schemas.wire.avro_schema import row_schema
from schemas.wire.epoch import StructureVersion

log = structlog.get_logger()

_TYPE = "application/vnd.schemaregistry.v1+json"
_TIMEOUT = 10.0  # seconds
_PAUSE, _LONGEST_PAUSE = 0.5, 8.0  # seconds between two attempts
# Temporary HTTP statuses besides 5xx: timeouts and rate limits.
_PASSING = frozenset({408, 425, 429})


class SchemaRegistry:
    """Registers schemas, and remembers which ids the log has for which schema.

    Args:
        url: ``http[s]://[user:password@]host[:port][/path]``; the credentials are in no message.
        structures: all structures that the log names so far; called once, for the first schema.
        patience: seconds to wait for an unavailable registry.
        stop_waiting: ends such a wait with ``ProducerStopped``.
    """

    def __init__(
        self,
        url: str,
        structures: Callable[[], Iterable[StructureVersion]],
        patience: float = 0.0,
        stop_waiting: threading.Event | None = None,
    ) -> None:
        self._patience, self._stop_waiting = patience, stop_waiting or threading.Event()
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        self._url = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        self._headers = {"Content-Type": _TYPE, "Accept": _TYPE}
        if parts.username is not None:
            account = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(account.encode()).decode()
        self._structures = structures
        self._texts: dict[bytes, str] | None = None
        self._ids: dict[str, bytes] = {}

    def schema_id(self, structure: TableStructure) -> bytes:
        """The id of a structure's schema as it stands on the wire: four bytes, big-endian.

        Raises:
            LogError: TR506 the registry stays away or refuses the schema; TR507 it gives the id of a schema that is
                another one in the log.
            ProducerStopped: it was to wait no longer.
        """
        text = row_schema(structure).text
        if text not in self._ids:
            number = self._register(structure, text)
            id_ = number.to_bytes(4, "big")
            if self._texts is None:
                self._texts = {bytes.fromhex(v.fingerprint): v.avro_schema for v in self._structures()}
            if self._texts.setdefault(id_, text) != text:
                raise LogError(
                    "TR507",
                    f"the schema registry at {self._url} gave the id {number}, which the log has for another schema",
                    where=Where(table=structure.name),
                    hint="use the registry that this prefix was started with, or a new prefix",
                )
            self._ids[text] = id_
        return self._ids[text]

    def _register(self, structure: TableStructure, text: str) -> int:
        namespace = json.loads(text)["namespace"]
        path = f"/subjects/{quote(f'{namespace}.Envelope', safe='')}/versions"
        answer = self._post(path, {"schema": text}, Where(table=structure.name))
        number = answer.get("id") if isinstance(answer, dict) else None
        if not isinstance(number, int) or not 0 <= number < 1 << 32:
            raise self._failed("returned no id for a schema", Where(table=structure.name))
        return number

    def _post(self, path: str, body: dict[str, str], where: Where) -> Any:
        request = Request(self._url + path, json.dumps(body).encode(), self._headers, method="POST")
        deadline, pause = time.monotonic() + self._patience, _PAUSE
        while True:
            try:
                with urlopen(request, timeout=_TIMEOUT) as response:
                    return json.load(response)
            except HTTPError as error:
                reason = f"answered {error.code}: {_message(error)}"
                if error.code < 500 and error.code not in _PASSING:
                    raise self._failed(f"rejected a schema: {reason}", where) from None
            except (URLError, OSError, ValueError, HTTPException) as error:
                reason = f"cannot be reached: {getattr(error, 'reason', None) or error!r}"
            if time.monotonic() > deadline:
                raise self._failed(f"{reason}; waited for {self._patience:.0f} s", where, retryable=True)
            log.warning("registry_retry", reason=reason, table=where.table)
            if self._stop_waiting.wait(pause):
                raise ProducerStopped("the schema registry does not answer")
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _failed(self, what: str, where: Where, *, retryable: bool = False) -> LogError:
        return LogError(
            "TR506",
            f"the schema registry at {self._url} {what}",
            where=where,
            hint="check [kafka] schema-registry-url, its account, and the registry's log and compatibility settings;"
            " nothing is lost: the next start continues after the last epoch",
            retryable=retryable,
        )


def _message(error: HTTPError) -> str:
    """The registry's own words."""
    try:
        answer = json.load(error)
        return f"{answer['message']} ({answer['error_code']})"[:300]
    except (ValueError, KeyError, TypeError, OSError, HTTPException):
        return str(error.reason)
