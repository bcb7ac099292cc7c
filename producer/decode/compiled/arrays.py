"""The arrays that compiled code works on, and the fields of their rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from schemas.compiled.types import Bytes, Numbers, Words

# Fields of a table, or of one of its kinds of events whose images lack columns: a variant. The columns are those of the
# after image; where there is only one image, of that.
(COLUMNS_AT, COLUMNS, KEY_AT, KEY_SIZE, CREATE, UPDATE, DELETE, OP_SIZE, NAME_AT, NAME_SIZE, BODY_AT, BODY_SIZE, ROOM,
 GROWTH, LOGGED, BEFORE_AT, BEFORE, KEY_BEFORE_AT, EVENT, IMAGES_AT, IMAGES_SIZE, NEXT,
 DOCUMENTS, TABLE_FIELDS) = range(24)  # fmt: skip
#: ``COLUMNS`` of a table that is not replicated, and of one whose rows are not decoded here
LEFT_OUT, NOT_HERE = -1, -2

# Fields of groups with successive numbers: where they end, where their source is in the block (MariaDB: the domain),
# number and time of the first and of the last one.
(END, SOURCE, SERVER_ID, NUMBER, COMMIT_MS, LAST_NUMBER, LAST_COMMIT_MS, GROUP_FIELDS) = range(8)

# Kinds of columns, and what the fields `a`, `b` and `c` of a column are for each; sizes are in bytes.
SIGNED = 1  # a: size
UNSIGNED = 2  # a: size
UNSIGNED_LONG = 3  # BIGINT UNSIGNED
FIXED = 4  # a: size
BITS = 5  # a: size
DECIMAL = 6  # a: precision, b: scale, c: size
UTF8 = 7  # a: size of the length
LATIN1 = 8  # a: the same
ASCII_BASED = 9  # a: the same
FOREIGN = 10  # a: the same
BINARY = 11  # a: the same, b: the size to which zero bytes are added
DATE = 12
YEAR = 13
TIME = 14  # a: digits of the fraction
DATETIME = 15  # a: the same
TIMESTAMP = 16  # a: the same
ENUM = 17  # a: size, b: where its members are listed, c: how many members
SET = 18  # a, b, c: the same
JSON = 19  # a: size of the length

# Fields of a column. The last ones: whether an event has it in the before image alone; its number there (-1: it is not
# there); and its number among all documents of the table.
KIND, A, B, C, TAG, BYTES_TAG, NULLABLE, IS_COPIED, IN_BEFORE, DOCUMENT, FIELDS = range(11)

# What is asked for, and what came of it.
(AT, STOP_AT, BASE, CHECKSUM, IS_MARIADB, FIRST_SEQ, MOST_ROWS, SIZE, MOST_SIZE, MOST_GROUPS, EPOCH_SIZE, FILE_SIZE,
 PUBLISHED_SIZE, GTID_SIZE, COMMITTED, TEXT_AT, BEHIND, WHY, GROUPS, ROWS, MOVES, TABLES,
 ASKED_FIELDS) = range(23)  # fmt: skip
#: why the walk ended: the data did; the epoch is full; before a gap; behind a gap; the arrays are full
DATA_ENDS, EPOCH_IS_FULL, GAP_BEGINS, GAP_ENDS, NO_ROOM = range(5)
#: of a group or an event: it is not plain; the arrays are full
NOT_PLAIN, TOO_LARGE = -1, -2
#: ids of a group's tables that are remembered; a power of two
OPEN_TABLES = 64

#: the smallest power of ten in ``POWERS``, whose numbers are ten to these powers as 128 bits, the first of which is set
LEAST_POWER, _MOST_POWER = -292, 324
# Fields of an open container of JSON.
(JSON_KIND, JSON_START, JSON_COUNT, JSON_INDEX, JSON_KEYS, JSON_ENTRIES, JSON_FIELDS) = range(7)
JSON_DEPTH = 100
# Fields of a node, a value of a document that is changed: its kind, where it is, whether that is in its entry, where
# its document ends; the node that came with that document, and for that one how many bytes were not read yet; how many
# containers it is in, which one, its first value and its next neighbor (-1: none), and where its name is (-1: none).
(NODE_KIND, NODE_AT, NODE_IS_INLINE, NODE_END, NODE_SOURCE, NODE_LEFT, NODE_DEPTH, NODE_PARENT, NODE_FIRST, NODE_NEXT,
 NODE_NAME_AT, NODE_NAME_SIZE, NODE_FIELDS) = range(13)  # fmt: skip
# What is asked for of one document, and what came of it: the sizes of the document, of its diffs (-1: there are none),
# and of its text (-1: it is left to Python).
DOCUMENT_SIZE, DIFFS_SIZE, TEXT_SIZE, DOCUMENT_FIELDS = range(4)
#: ``NODE_FIRST`` of a value whose own values are not nodes
NODE_UNREAD = -2


def _powers() -> Words:
    made = []
    for power in range(LEAST_POWER, _MOST_POWER + 1):
        numerator, denominator = (10**power, 1) if power >= 0 else (1, 10**-power)
        shift = 128 - (numerator.bit_length() if power >= 0 else 0)
        if power < 0:
            # 2^(n - 1) < 10^-power <= 2^n, so that the quotient has 128 bits.
            shift = 127 + denominator.bit_length()
        scaled = numerator << shift if shift >= 0 else numerator
        if shift < 0:
            denominator <<= -shift
        quotient = -(-scaled // denominator)
        made.append((quotient >> 64, quotient & (1 << 64) - 1))
    return np.array(made, np.uint64)


POWERS = _powers()


class Tables(NamedTuple):
    """Known tables, as arrays.

    Attributes:
        tables: fields of each, and of their variants, in the order in which they were met.
        columns: fields of all tables' columns.
        keys: numbers of their keys' columns within the table.
        texts: TABLE_MAPs' bodies, beginnings of values, names, and members of ENUM and SET.
        members: where these begin in ``texts``; each column's are followed by their end.
        latin1: of each byte the size of its UTF-8, and its bytes.
        powers: of ten; see ``json_text``.
        slots: a hash table of the numbers of tables by their bodies; -1 is empty.
    """

    tables: Numbers
    columns: Numbers
    keys: Numbers
    texts: Bytes
    members: Numbers
    latin1: Bytes
    powers: Words
    slots: Numbers


class Block(NamedTuple):
    """What is read.

    Attributes:
        b: the block's bytes.
        asked: what is asked for, and what came of it.
        varying: the epoch's number, the file's name and the time of publishing, as values have them.
    """

    b: Bytes
    asked: Numbers
    varying: Bytes


class Output(NamedTuple):
    """Where decoded rows go, and scratch.

    Attributes:
        keys, values: the bytes of all.
        key_ends, value_ends: where each ends.
        groups: fields of groups with successive numbers.
        moves: numbers of rows that are the first half of a key change.
        counts: of each table and variant: rows of INSERT, UPDATE and DELETE events.
        order: tables in the order in which they came first.
        events: of the open group's rows events: the table or variant, the column of ``counts``, and the number of rows.
        open_tables: ids of the open group's tables, and their numbers.
        gtid, tail, before: bytes of the open group, event and row.
        columns_before, columns_after: where the columns of a row's images begin.
        documents: where documents of the before image begin and end in the block, by their columns; -1 for NULL.
        words, stack, nodes: scratch of ``value``, of ``json_text`` and of ``json_patched``.
    """

    keys: Bytes
    values: Bytes
    key_ends: Numbers
    value_ends: Numbers
    groups: Numbers
    moves: Numbers
    counts: Numbers
    order: Numbers
    events: Numbers
    open_tables: Numbers
    gtid: Bytes
    tail: Bytes
    before: Bytes
    columns_before: Numbers
    columns_after: Numbers
    documents: Numbers
    words: Words
    stack: Numbers
    nodes: Numbers
