"""Decodes text of the servers' character sets without a server: members of ENUM and SET, statements of clients.

A character set is decoded by Python's codec, corrected where the servers read a character differently. Source: both
servers' own conversions of every byte and every pair of bytes.
"""

from __future__ import annotations

import codecs
from functools import lru_cache

_UNDEFINED = "\N{REPLACEMENT CHARACTER}"

# For each single-byte character set: Python's codec, and runs of characters that replace its own.
_SINGLE: dict[str, tuple[str, dict[int, str]]] = {
    "ascii": ("ascii", {}),
    **{name: (name, {}) for name in ("cp1250", "cp1251", "cp1256", "cp1257", "cp850", "cp852")},
    "latin2": ("iso8859-2", {}),
    "latin5": ("iso8859-9", {}),
    "koi8r": ("koi8-r", {}),
    "armscii8": ("latin-1", {
        0xA1: "❁§։)(»«—.՝,-՟…՜՛՞ԱաԲբԳգԴդԵեԶզԷէԸըԹթԺժԻիԼլԽխԾծԿկՀհՁձՂղՃճՄմՅյՆ"
        "նՇշՈոՉչՊպՋջՌռՍսՎվՏտՐրՑցՒւՓփՔքՕօՖֆ’'",
    }),
    "dec8": ("latin-1", {
        0xA4: "�¥�§¤©ª«����",
        0xB4: "�µ¶·�",
        0xBE: "�",
        0xD0: "�",
        0xD7: "Œ",
        0xDD: "Ÿ�",
        0xF0: "�",
        0xF7: "œ",
        0xFD: "ÿ��",
    }),
    "geostd8": ("latin-1", {
        0x80: "€�‚�„…†‡�‰�‹�����‘’“”•–—���›����",
        0xC0: "აბგდევზჱთიკლმნჲოპჟრსტჳუფქღყშჩცძწჭხჴჯჰჵ�����������������������№��",
    }),
    "hp8": ("latin-1", {
        0xA1: "ÀÂÈÊËÎÏ´ˋˆ¨˜ÙÛ₤¯Ýý°ÇçÑñ¡¿¤£¥§ƒ¢âêôûáéóúàèòùäëöüÅîØÆåíøæÄìÖÜÉ"
        "ïßÔÁÃãÐðÍÌÓÒÕõŠšÚŸÿÞþ·µ¶¾—¼½ªº«■»±�",
    }),
    "keybcs2": ("cp437", {0x80: "ČüéďäĎŤčěĚĹÍľĺÄÁÉžŽôöÓůÚýÖÜŠĽÝŘť", 0xA4: "ňŇŮÔšřŕŔ"}),
    "latin7": ("iso8859-13", {}),
    "macce": ("mac_latin2", {}),
    "macroman": ("mac_roman", {}),
    "swe7": ("ascii", {0x40: "É", 0x5B: "ÄÖÅÜ_é", 0x7B: "äöåü�"}),
    "tis620": ("tis_620", {}),
    "cp866": ("cp866", {0xFC: "ⁿ²"}),
    "greek": ("iso8859-7", {0xA1: "ʽʼ£��", 0xAA: "�"}),
    "hebrew": ("iso8859-8", {0xAF: "‾"}),
    "koi8u": ("koi8-u", {0x95: "•"}),
    "latin1": ("cp1252", {0x81: "\x81", 0x8D: "\x8d", 0x8F: "\x8f", 0x90: "\x90", 0x9D: "\x9d"}),
}  # fmt: skip
_CODECS = {
    **dict.fromkeys(("utf8mb3", "utf8mb4"), "utf-8"),
    **dict.fromkeys(("ucs2", "utf16"), "utf-16-be"),
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    **{name: name for name in ("gbk", "gb2312", "gb18030", "big5", "cp932")},
    "euckr": "cp949",
    "ujis": "euc_jp",
    "sjis": "shift_jis",
}
_FIRST_PLANE = frozenset({"utf8mb3", "ucs2"})
_KANA, _THREE_BYTES, _PRIVATE = 0x8E, 0x8F, 0xF5


def text_of(data: bytes, charset: str) -> str:
    """Decode text of one of the servers' character sets.

    Raises:
        UnicodeDecodeError: the bytes are not valid in it.
        LookupError: an unknown character set.
    """
    if charset in _SINGLE:
        return codecs.charmap_decode(data, "strict", _table(charset))[0]
    if charset == "eucjpms":
        return _eucjpms(data)
    text = data.decode(_CODECS[charset])
    # Python's codec follows the standard's first edition, in which this character was a private one.
    return text.replace("\ue7c7", "ḿ") if charset == "gb18030" else text


def holds(text: str, charset: str) -> bool:
    """Whether a character set is certain to have all characters of a text."""
    if charset == "sjis" and any(character in text for character in "\\~"):
        return False  # the servers have other characters in their positions
    if charset in _SINGLE:
        return all(character in _table(charset) for character in text)
    if text.isascii():
        return True
    codec = _CODECS.get(charset)
    if codec is None or (charset in _FIRST_PLANE and max(text) > "\uffff"):
        return False
    try:
        return text_of(text.encode(codec), charset) == text
    except UnicodeError:
        return False


@lru_cache
def _table(charset: str) -> str:
    codec, runs = _SINGLE[charset]
    characters = [bytes((b,)).decode(codec, "replace") for b in range(256)]
    for start, run in runs.items():
        characters[start : start + len(run)] = run
    # charmap_decode treats U+FFFE as undefined.
    return "".join(characters).replace(_UNDEFINED, "\ufffe")


def _eucjpms(data: bytes) -> str:
    """Decode eucjpms: two-byte characters by cp932's table, at EUC-JP's positions; the others as EUC-JP."""
    text, pos = [], 0
    while pos < len(data):
        first = data[pos]
        size = 1 if first < 0x80 else 3 if first == _THREE_BYTES else 2
        one = data[pos : pos + size]
        if size == 2 and first >= _PRIVATE and len(one) == 2:
            text.append(chr(0xE000 + 94 * (first - _PRIVATE) + one[1] - 0xA1))
        elif size == 2 and first != _KANA and len(one) == 2:
            text.append(_shifted(first - 0xA1, one[1] - 0xA1).decode("cp932"))
        else:
            text.append(one.decode("euc_jp").translate(_WIDE) if size == 3 else one.decode("euc_jp"))
        pos += size
    return "".join(text)


_WIDE = {ord("~"): "～", ord("¦"): "￤"}


def _shifted(row: int, cell: int) -> bytes:
    """Encode a character's row and cell, from 0, in Shift JIS."""
    lead = (row >> 1) + (0x81 if row < 62 else 0xC1)
    return bytes((lead, cell + 0x9F if row % 2 else cell + 0x40 + (cell >= 63)))
