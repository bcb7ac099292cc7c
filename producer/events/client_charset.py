"""Statement bytes to text: which charset a client's collation id means."""

from __future__ import annotations

from schemas.charsets.collations import CHARSETS
from schemas.charsets.text import text_of

UTF8 = "utf-8"


def decode_text(data: bytes, collation: int) -> str:
    """Text that a client with ``character_set_client`` of this collation id sent.

    Raises:
        UnicodeDecodeError: not valid in that charset.
        LookupError: a charset that is not known here.
    """
    charset = CHARSETS[collation]
    # A client with charset binary sends bytes as they are: nearly always UTF-8.
    return data.decode(UTF8) if charset == "binary" else text_of(data, charset)
