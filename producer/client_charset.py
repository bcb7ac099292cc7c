"""Statement bytes to text: which charset a client's collation id means, and Python's codec for it."""

from __future__ import annotations

UTF8 = "utf-8"

# Collation ids (information_schema.COLLATIONS) of the charsets that a client can have, by Python codec.
# ucs2, utf16 and utf32 cannot be client charsets. Left out are charsets that Python has no table of (dec8,
# hp8, swe7, armscii8, keybcs2, geostd8) or another one than MySQL (eucjpms): their text is refused.
_CODECS: dict[str, tuple[int, ...]] = {
    "big5": (1, 84),
    "iso8859_2": (2, 9, 21, 27, 77),
    "cp850": (4, 80),
    "latin1": (5, 8, 15, 31, 47, 48, 49, 94),
    "koi8_r": (7, 74),
    "ascii": (11, 65),
    "euc_jp": (12, 91),
    "shift_jis": (13, 88),
    "cp1251": (14, 23, 50, 51, 52),
    "iso8859_8": (16, 71),
    "tis_620": (18, 89),
    "cp949": (19, 85),  # MySQL's euckr holds all of it
    "iso8859_13": (20, 41, 42, 79),
    "koi8_u": (22, 75),
    "gb2312": (24, 86),
    "iso8859_7": (25, 70),
    "cp1250": (26, 34, 44, 66, 99),
    "gbk": (28, 87),
    "cp1257": (29, 58, 59),
    "iso8859_9": (30, 78),
    UTF8: (33, 76, 83, *range(192, 216), 223, 45, 46, *range(224, 248)),
    "cp866": (36, 68),
    "mac_latin2": (38, 43),
    "mac_roman": (39, 53),
    "cp852": (40, 81),
    "cp1256": (57, 67),
    "cp932": (95, 96),
    "gb18030": (248, 249, 250),
}
_BINARY = 63
_CODEC_BY_ID = {number: codec for codec, numbers in _CODECS.items() for number in numbers}

# A client with charset binary sends bytes as they are: nearly always UTF-8.
_CODEC_BY_ID[_BINARY] = UTF8

# MySQL 8.0 and later: utf8mb4_0900_* and the languages' own, up to utf8mb4_mn_cyrl_0900_as_cs.
_MYSQL_UTF8 = range(255, 324)
# MariaDB: Croatian and Myanmar; UCA 14 collations (utf8mb3 from 2048, utf8mb4 from 2304).
_MARIADB_UTF8 = (range(576, 579), range(608, 611), range(2048, 2560))
# MariaDB's NO PAD twin of a collation has its number plus 1024.
_NOPAD = 1024

# MySQL's latin1 is Windows-1252, the five bytes that Windows leaves undefined being control characters.
_UNDEFINED_1252 = frozenset((0x81, 0x8D, 0x8F, 0x90, 0x9D))
_LATIN1 = {b: bytes((b,)).decode("cp1252") for b in range(0x80, 0xA0) if b not in _UNDEFINED_1252}


def codec_of(collation: int) -> str | None:
    """Python's codec for the charset of a collation id; None if Python has none that agrees with MySQL's."""
    if collation in _MYSQL_UTF8 or any(collation in numbers for numbers in _MARIADB_UTF8):
        return UTF8
    if _NOPAD < collation < _NOPAD + 256:
        collation -= _NOPAD
    return _CODEC_BY_ID.get(collation)


def decode_text(data: bytes, collation: int) -> str:
    """Text that a client with ``character_set_client`` of this collation id sent.

    Raises:
        UnicodeDecodeError: not valid in that charset.
        LookupError: a charset that is not known here.
    """
    codec = codec_of(collation)
    if codec is None:
        raise LookupError(f"no table for the charset of collation {collation}")
    if codec == "latin1":
        return data.decode("latin-1").translate(_LATIN1)
    return data.decode(codec)
