"""Column types of both servers, with literals of their values, and whether each can be a key."""

from __future__ import annotations

LOOSE = "SET SESSION sql_mode='NO_BACKSLASH_ESCAPES,ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO'"
_WORDS = ["''", "'a'", "'it''s'", r"'back\slash'", "' lead'", "X'00'", "'%_'", "REPEAT('z', 20)"]
_UTF8 = [*_WORDS, "'héllo'", "'ß'", "'日本語'"]
_ALL_UTF8 = [*_UTF8, "'😀'", "CONCAT(CHAR(10), CHAR(13), CHAR(9), CHAR(26), CHAR(0))"]
_BYTES = ["X''", "X'00'", "X'0000'", "X'FF'", "X'27'", "X'5C27'", "X'0A1A00'", "X'41'", "X'4100'", "X'20'"]
# (type, literals, whether it can be a key by itself)
TYPES: list[tuple[str, list[str], bool]] = [
    ("TINYINT", ["-128", "127", "0", "-1"], True),
    ("TINYINT UNSIGNED", ["0", "128", "255"], True),
    ("BOOLEAN", ["0", "1"], True),
    ("SMALLINT", ["-32768", "32767", "0", "-1"], True),
    ("SMALLINT UNSIGNED", ["0", "32768", "65535"], True),
    ("MEDIUMINT", ["-8388608", "8388607", "0", "-1"], True),
    ("MEDIUMINT UNSIGNED", ["0", "8388608", "16777215"], True),
    ("INT", ["-2147483648", "2147483647", "0", "-65536", "65535", "65536", "-65537", "-1"], True),
    ("INT UNSIGNED", ["0", "2147483648", "4294967295"], True),
    ("BIGINT", ["-9223372036854775808", "9223372036854775807", "0", "-1", "1073741824"], True),
    ("BIGINT UNSIGNED", ["0", "127", "128", "255", "9223372036854775808", "18446744073709551615"], True),
    ("DECIMAL(1,0)", ["-9", "0", "9"], True),
    ("DECIMAL(10,2)", ["-99999999.99", "99999999.99", "0", "-0.01", "1.10", "-1"], True),
    ("DECIMAL(10,2) UNSIGNED", ["99999999.99", "0", "0.01"], True),
    ("DECIMAL(65,30)", ["-" + "9" * 35 + "." + "9" * 30, "1e-30", "-1e-30", "0", "9e34"], True),
    ("DECIMAL(65,0)", ["9" * 65, "-" + "9" * 65, "1000000000", "999999999"], True),
    ("DECIMAL(30,30)", ["0." + "9" * 30, "-0." + "9" * 30, "1e-30"], True),
    ("DECIMAL(9,9)", ["0.123456789", "-0.000000001"], True),
    ("FLOAT", ["0", "-0e0", "0.1", "3.402823466e38", "-3.402823466e38", "1.4e-45", "16777217", "1.5"], False),
    ("DOUBLE", ["0", "-0e0", "0.1", "1.7976931348623157e308", "5e-324", "2.2250738585072014e-308", "1e15",
                "9007199254740993e0", "123456789.123456789", "1e22", "-1e-7"], False),
    ("FLOAT(7,3)", ["1234.567", "0.001"], False),
    ("DOUBLE(20,5) UNSIGNED", ["123456789012345.12345", "0.00001"], False),
    ("BIT(1)", ["b'0'", "b'1'"], True),
    ("BIT(9)", ["b'0'", "b'100000001'", "b'111111111'"], True),
    ("BIT(64)", ["0", "18446744073709551615", "9223372036854775808", "39"], True),
    ("YEAR", ["'0000'", "1901", "2155", "2024"], True),
    ("DATE", ["'0000-00-00'", "'1000-01-01'", "'9999-12-31'", "'2024-02-30'", "'2024-00-00'", "'2024-02-29'",
              "'0001-01-01'"], True),
    ("TIME", ["'00:00:00'", "'-838:59:59'", "'838:59:59'", "'-00:00:01'", "'23:59:59'"], True),
    *[
        (f"TIME({n})", ["'-838:59:59'", "'-00:00:00.9'", "'-00:00:01.000001'", "'12:34:56.789123'",
                        "'-12:34:56.1'", "'-00:00:00.000001'"], True)
        for n in range(1, 7)
    ],
    ("DATETIME", ["'0000-00-00'", "'1000-01-01'", "'9999-12-31 23:59:59'", "'2024-02-30 01:02:03'"], True),
    *[
        (f"DATETIME({n})", ["'0000-00-00'", "'9999-12-31 23:59:59'", "'2024-01-01 00:00:00.000001'",
                            "'1969-12-31 23:59:59.9'", "'2024-12-31 12:34:56.789123'"], True)
        for n in range(1, 7)
    ],
    ("TIMESTAMP NULL", ["'0000-00-00'", "'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'",
                        "'2024-03-31 01:59:59'", "'2024-10-27 01:30:00'"], True),
    *[
        (f"TIMESTAMP({n}) NULL", ["'0000-00-00'", "'1970-01-01 00:00:01.9'", "'2024-12-31 12:34:56.789123'"],
         True)
        for n in (1, 2, 3, 6)
    ],
    ("CHAR(20) CHARACTER SET utf8mb4", _ALL_UTF8, True),
    ("CHAR(255) CHARACTER SET utf8mb4", [*_ALL_UTF8, "REPEAT('é', 255)", "REPEAT('a', 100)"], False),
    ("CHAR(0)", ["''"], False),
    ("VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", [*_ALL_UTF8, "'tail  '"], True),
    ("VARCHAR(63)", [*_ALL_UTF8, "REPEAT('a', 63)"], True),
    ("VARCHAR(64)", [*_ALL_UTF8, "REPEAT('😀', 64)"], True),
    ("VARCHAR(16000)", ["REPEAT('a', 8191)", "REPEAT('b', 8192)", "REPEAT('é', 16000)"], False),
    ("VARCHAR(20) CHARACTER SET utf8mb3", _UTF8, True),
    ("VARCHAR(20) CHARACTER SET latin1", [*_WORDS, "'é'", "'€'", "_latin1 X'8081828D8F909DA0FF'"], True),
    ("CHAR(10) CHARACTER SET ascii", ["'a'", "'~'", "''"], True),
    ("VARCHAR(20) CHARACTER SET cp1251", [*_WORDS, "'Привет'"], True),
    ("VARCHAR(20) CHARACTER SET gbk", [*_WORDS, "_gbk X'B95C'", "'中文'"], True),
    ("VARCHAR(20) CHARACTER SET sjis", [*_WORDS, "_sjis X'835C'", "'日本'"], True),
    ("VARCHAR(20) CHARACTER SET big5", [*_WORDS, "'中文'"], True),
    ("VARCHAR(20) CHARACTER SET ucs2", [*_UTF8, "'☃'"], True),
    ("CHAR(20) CHARACTER SET utf16", _ALL_UTF8, True),
    ("VARCHAR(20) CHARACTER SET utf32", _ALL_UTF8, True),
    ("VARCHAR(20) CHARACTER SET swe7", ["'a'", "'å'"], True),
    ("TINYTEXT", _ALL_UTF8, False),
    ("TEXT CHARACTER SET latin1", [*_WORDS, "'é'", "REPEAT('é', 300)"], False),
    ("MEDIUMTEXT", [*_ALL_UTF8, "REPEAT('0123456789', 30000)"], False),
    ("LONGTEXT", _ALL_UTF8, False),
    ("BINARY(5)", _BYTES, True),
    ("BINARY(255)", [*_BYTES, "REPEAT(X'FF', 255)"], False),
    ("VARBINARY(20)", _BYTES, True),
    ("VARBINARY(300)", [*_BYTES, "REPEAT(X'00', 300)"], True),
    ("TINYBLOB", _BYTES, False),
    ("BLOB", [*_BYTES, "REPEAT(X'00FF', 5000)"], False),
    ("MEDIUMBLOB", [*_BYTES, "REPEAT(X'27', 70000)"], False),
    ("LONGBLOB", [*_BYTES, "REPEAT(X'F027E3275C00C33BF09F9827', 2000)"], False),
    ("ENUM('x','it''s','ü','1','0')", ["'x'", "'it''s'", "'ü'", "'1'", "'0'", "1"], True),
    ("ENUM('','a')", ["''", "'a'"], True),
    ("ENUM('é','b') CHARACTER SET latin1", ["'é'", "'b'"], True),
    (f"ENUM({','.join(repr(f'm{i}') for i in range(300))})", ["'m0'", "'m255'", "'m256'", "'m299'"], True),
    ("SET('p','q','it''s','ü')", ["''", "'p'", "'p,q,it''s,ü'", "'ü'"], True),
    (f"SET({','.join(repr(f's{i}') for i in range(64))})", ["''", "18446744073709551615", "'s63'", "'s0,s8'"],
     True),
    ("SET('a','é') CHARACTER SET latin1", ["'é'", "'a,é'"], True),
    ("GEOMETRY", ["ST_GeomFromText('POINT(1 2)')", "ST_GeomFromText('POINT(1 2)', 4326)",
                  "ST_GeomFromText('POLYGON((0 0,0 3,3 0,0 0))')"], False),
    ("POINT", ["ST_GeomFromText('POINT(-1.5 2e100)')"], False),
]  # fmt: skip
_JSON = [
    "{}", "[]", '""', "null", "true", "false", "0", "-1", "1.0", "-0.0", "1e20", "1e15", "1e16", "123456789012345678",
    "1e-7", "0.0001", "1.5e-300", "18446744073709551615", "-9223372036854775808", "32767", "32768", "-32769", "65536",
    "4294967296", '"it\'s"', r'"a\"b\\c\/\b\f\n\r\t\u0001\u001f\u007f"', '"é日😀"',
    '{"a": [1, 2.5, null, true, {"b": {"c": 1e20}}], "": 0, "longer key": "x"}', '["\u2028"]',
    "[" + ",".join(str(i * 7919) for i in range(3000)) + "]",
    '{"big": "' + "x" * 70000 + '", "n": -5, "u": 70000, "t": true, "z": null}',
    '[0.1, 1.7976931348623157e308, 5e-324, 100000000000000000000.0, 12345678901234567, 1234567890123456.7]',
]  # fmt: skip
MYSQL_TYPES: list[tuple[str, list[str], bool]] = [
    ("JSON", ["'" + text.replace("'", "''") + "'" for text in _JSON], False),
    ("VECTOR(3)", ["TO_VECTOR('[1,2,3]')", "TO_VECTOR('[0.1,-1e30,0]')"], False),
    ("VARCHAR(20) CHARACTER SET gb18030", [*_WORDS, "'中文😀'"], True),
]
MARIADB_TYPES: list[tuple[str, list[str], bool]] = [
    ("JSON", ["'" + text.replace("'", "''") + "'" for text in _JSON[:-1]], False),
    ("INET4", ["'0.0.0.0'", "'192.168.1.0'", "'255.255.255.255'"], True),
    ("INET6", ["'::'", "'::ffff:1.2.3.4'", "'2001:db8::'", "'ff::27'"], True),
    ("UUID", ["'00000000-0000-0000-0000-000000000000'", "'123e4567-e89b-12d3-a456-426655440000'",
              "'ffffffff-ffff-ffff-ffff-ffffffffff00'"], True),
    ("VARCHAR(20) CHARACTER SET utf8mb4 COLLATE uca1400_ai_ci", _ALL_UTF8, True),
    ("TIMESTAMP NULL", ["'2038-01-19 03:14:07'"], True),
    ("VARCHAR(200) CHARACTER SET utf8mb4 COMPRESSED", [*_ALL_UTF8, "REPEAT('é', 200)", "REPEAT('a', 99)"], False),
    ("VARCHAR(254) CHARACTER SET latin1 COMPRESSED", [*_WORDS, "REPEAT('é', 254)"], False),
    ("VARCHAR(255) CHARACTER SET latin1 COMPRESSED", [*_WORDS, "REPEAT('é', 255)"], False),
    ("VARBINARY(300) COMPRESSED", [*_BYTES, "REPEAT(X'00', 300)"], False),
    ("TINYTEXT COMPRESSED", [*_UTF8, "REPEAT('z', 250)"], False),
    ("TEXT COMPRESSED CHARACTER SET gbk", [*_WORDS, "REPEAT('中', 5000)"], False),
    ("MEDIUMTEXT COMPRESSED", [*_ALL_UTF8, "REPEAT('0123456789', 30000)"], False),
    ("BLOB COMPRESSED", [*_BYTES, "REPEAT(X'00FF', 5000)"], False),
    ("LONGBLOB COMPRESSED", [*_BYTES, "REPEAT(X'27', 70000)"], False),
]  # fmt: skip
#: what SQL makes scalars of JSON documents of: a value, and the type that the document keeps
JSON_SCALARS = {
    "DECIMAL(10,2)": ("-12.50", "DECIMAL"), "DECIMAL(65,30)": ("1e-30", "DECIMAL"), "DECIMAL(3,0)": ("7", "DECIMAL"),
    "DATE": ("'2024-02-29'", "DATE"), "TIME(3)": ("'-838:59:58.5'", "TIME"), "TIME": ("'-00:00:01'", "TIME"),
    "DATETIME(6)": ("'9999-12-31 23:59:59.000001'", "DATETIME"),
    "TIMESTAMP(2)": ("'2024-01-02 03:04:05.25'", "TIMESTAMP"),
    "YEAR": ("1999", "UNSIGNED INTEGER"), "BIT(9)": ("257", "BIT"), "BIT(1)": ("0", "BIT"),
    "BINARY(3)": ("X'0102'", "BLOB"),
    "BINARY(0)": ("X''", "BLOB"), "VARBINARY(9)": ("X'2A2F00FF27'", "BLOB"), "BLOB": ("X'2A2F'", "BLOB"),
    "MEDIUMBLOB": ("REPEAT(X'00FF', 40000)", "BLOB"), "LONGBLOB": ("X''", "BLOB"),
    "INT UNSIGNED": ("5", "UNSIGNED INTEGER"),
    "BIGINT UNSIGNED": ("18446744073709551615", "UNSIGNED INTEGER"), "TINYINT UNSIGNED": ("0", "UNSIGNED INTEGER"),
    "FLOAT": ("0.1", "DOUBLE"), "VARCHAR(20)": ("'base64:type252:AA=='", "STRING"), "SET('a','b')": ("'a,b'", "STRING"),
    "POINT": ("POINT(1, 2)", "OBJECT"), "BOOLEAN": ("TRUE", "INTEGER"),
    "BIGINT": ("4294967296", "INTEGER"),
    "BIGINT(9)": ("-4294967296", "INTEGER"), "BIGINT(8)": ("4294967295", "INTEGER"),
    "INT(9) UNSIGNED": ("4294967295", "UNSIGNED INTEGER"), "BIGINT(9) UNSIGNED": ("4294967296", "UNSIGNED INTEGER"),
    "DECIMAL(2,2)": ("-0.05", "DECIMAL"), "DECIMAL(5,5)": ("0", "DECIMAL"), "JSON": ("'[1, 1.0, null, {}]'", "ARRAY"),
}  # fmt: skip


def types_of(flavor: str) -> list[tuple[str, list[str], bool]]:
    return TYPES + (MYSQL_TYPES if flavor == "mysql" else MARIADB_TYPES)
