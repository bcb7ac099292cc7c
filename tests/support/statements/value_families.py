"""A column of every family of types, with two values that are easily taken for the same."""

from __future__ import annotations

#: by column: type, a value, and another value that a careless comparison takes for the same
FAMILIES = {
    "i": ("INT", "1", "2"),
    "z": ("INT(6) ZEROFILL", "42", "43"),
    "u": ("BIGINT UNSIGNED", "18446744073709551615", "18446744073709551614"),
    "n": ("DECIMAL(30,10)", "1.0000000001", "1.0000000002"),
    "f": ("FLOAT", "16777216", "16777218"),
    "f0": ("FLOAT", "0e0", "-0e0"),
    "d": ("DOUBLE", "0.1e0", "0.10000000000000002e0"),
    "d0": ("DOUBLE", "0e0", "-0e0"),
    "y": ("YEAR", "2000", "0"),
    "a": ("DATE", "'0000-00-00'", "'2024-00-00'"),
    "t": ("TIME(6)", "'-00:00:00.000001'", "'00:00:00.000001'"),
    "m": ("DATETIME(6)", "'2024-01-01 00:00:00.000001'", "'2024-01-01 00:00:00.000002'"),
    "s": ("TIMESTAMP(3) NULL", "'2024-03-31 01:59:59.123'", "NULL"),
    "b": ("BIT(20)", "39", "40"),
    "v": ("VARCHAR(50)", "'a'", "'a '"),
    "v2": ("VARCHAR(50)", "'ß'", "'ss'"),
    "v3": ("VARCHAR(50)", "NULL", "''"),
    "v4": ("VARCHAR(50)", "'N'", "NULL"),
    "c": ("CHAR(10)", "'é'", "'e'"),
    "l": ("VARCHAR(10) CHARACTER SET latin1", "'é'", "'É'"),
    "g": ("VARCHAR(10) CHARACTER SET gbk", "'中'", "'文'"),
    "w": ("VARCHAR(10) CHARACTER SET utf16", "'a'", "'b'"),
    "x": ("TEXT", "REPEAT('x', 5000)", "CONCAT(REPEAT('x', 4999), 'y')"),
    "o": ("BLOB", "X'00'", "X'0000'"),
    "p": ("BINARY(5)", "X'01'", "X'02'"),
    "q": ("VARBINARY(20)", "X''", "X'20'"),
    "e": ("ENUM('x','y','')", "'x'", "''"),
    "h": ("SET('p','q')", "'p'", "'p,q'"),
    "j": ("JSON", """'{"b": 1, "a": [1.5, null]}'""", """'{"b": 1, "a": [1.5, 0]}'"""),
    "j2": ("JSON", "'18446744073709551616'", "'18446744073709551615'"),
    "k": ("GEOMETRY", "ST_GeomFromText('POINT(1 2)')", "ST_GeomFromText('POINT(1 3)')"),
}

#: the columns of a CREATE TABLE, and the first and the second values of an INSERT
COLUMNS = ", ".join(f"{name} {kind}" for name, (kind, _, _) in FAMILIES.items())
VALUES = ", ".join(value for _, value, _ in FAMILIES.values())
OTHERS = ", ".join(other for _, _, other in FAMILIES.values())
