"""JSON documents to Avro: with compiled code once it is there, and with Python what it leaves."""

from __future__ import annotations

from collections.abc import Callable

from producer.events import json_diff
from schemas.types import json_avro as types
from schemas.varint import encode_bytes

#: a binary document, and its diffs if there are any -> its text; None if Python has to make it
DocumentText = Callable[[bytes, bytes | None], bytes | None]

_compiled: list[DocumentText] = []


def use(text: DocumentText | None) -> None:
    """From now on this process makes documents' texts with this; None: with Python alone."""
    _compiled[:] = [text] if text else []


def json_avro(data: bytes, text_tag: bytes, typed_tag: bytes) -> bytes:
    """``schemas.types.json_avro.json_avro``."""
    for text_of in _compiled:
        if (text := text_of(data, None)) is not None:
            return text_tag + encode_bytes(text)
    return types.json_avro(data, text_tag, typed_tag)


def json_patched(before: bytes | None, diffs: bytes, text_tag: bytes, typed_tag: bytes) -> bytes:
    """``producer.events.json_diff.json_patched``."""
    for text_of in _compiled:
        if before is not None and (text := text_of(before, diffs)) is not None:
            return text_tag + encode_bytes(text)
    return json_diff.json_patched(before, diffs, text_tag, typed_tag)
