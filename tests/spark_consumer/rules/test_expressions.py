"""The expression filter against the servers' own SELECT: the same result for every row, or a refusal."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import pymysql
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compose.databases import Database
from schemas.codegen import compile_function
from schemas.sql.literals import SESSION_SETUP, compile_renderers
from schemas.structure import Column, TableStructure
from spark_consumer.rules.expressions import UnsupportedExpression
from spark_consumer.rules.expressions.code import ExpressionCompiler
from spark_consumer.rules.expressions.filter import value_lines, value_names
from spark_consumer.rules.expressions.kinds import Unevaluable, collation
from spark_consumer.rules.expressions.parse import parse
from tests.support.epochs.fake_topic import insert, row_value

pytestmark = pytest.mark.servers

WEIGHTED = {"mysql": "utf8mb4_0900_ai_ci", "mariadb": "utf8mb4_uca1400_ai_ci"}


def columns(flavor: str) -> list[tuple[Column, str]]:
    """Columns of every kind, with their definitions on the server."""
    texts = {"g": "utf8mb4_general_ci", "n": "utf8mb4_bin", "w": WEIGHTED[flavor], "uc": "utf8mb4_unicode_ci"}
    return [
        (Column("id", "int", 3, 0, False), "INT PRIMARY KEY"),
        (Column("i", "int", 3, 0, True), "INT"),
        (Column("u", "int unsigned", 3, 0, True, unsigned=True), "INT UNSIGNED"),
        (Column("b", "bigint", 8, 0, True), "BIGINT"),
        (Column("ub", "bigint unsigned", 8, 0, True, unsigned=True), "BIGINT UNSIGNED"),
        (Column("d", "decimal(12,3)", 246, 12 << 8 | 3, True), "DECIMAL(12,3)"),
        (Column("f", "double", 5, 8, True), "DOUBLE"),
        (Column("fl", "float", 4, 4, True), "FLOAT"),
        (Column("bt", "bit(8)", 16, 8, True), "BIT(8)"),
        *(
            (Column(name, "varchar(20)", 15, 80, True, charset="utf8mb4"), f"VARCHAR(20) COLLATE {text}")
            for name, text in texts.items()
        ),
        (Column("l", "varchar(20)", 15, 20, True, charset="latin1"), "VARCHAR(20) CHARACTER SET latin1"),
        (Column("vb", "varbinary(20)", 15, 20, True, charset="binary"), "VARBINARY(20)"),
        (Column("dt", "datetime(3)", 18, 3, True), "DATETIME(3)"),
        (Column("da", "date", 10, 0, True), "DATE"),
        (Column("ts", "timestamp", 17, 0, True), "TIMESTAMP NULL"),
        (Column("ti", "time(2)", 19, 2, True), "TIME(2)"),
        (Column("y", "year", 13, 0, True), "YEAR"),
        (
            Column("e", "enum('a','B','10')", 247, 1, True, charset="utf8mb4", members=("a", "B", "10")),
            "ENUM('a','B','10') COLLATE utf8mb4_general_ci",
        ),
    ]


TEXTS = ["", "a", "A", "a ", "B", "10", "1.5", "1e1", " 7x", "x'y", "%", "a_c", "\\", "ab\n", "Zz~", "_"]


def _row(n: int) -> dict[str, Any]:
    texts = {name: TEXTS[(n + i) % len(TEXTS)] for i, name in enumerate(["g", "n", "w", "uc", "l"])}
    return texts | {
        "i": [0, 1, -1, 2, 10, 255, 2**31 - 1][n % 7],
        "u": [1, 0, 2, 10, 255, 2**32 - 1, 7][n % 7],
        "b": [0, -(2**63), 2**63 - 1, 9007199254740993, 7, -3, 10][n % 7],
        "ub": Decimal([0, 2**64 - 1, 1, 2**63, 18, 10, 5][n % 7]),
        "d": Decimal(["0.000", "1.500", "-2.125", "999999999.999", "10.000", "0.100", "-0.001"][n % 7]),
        "f": [0.0, 1.5, -2.25, 1e300, 0.1, 10.0, 5e-324][n % 7],
        "fl": [0.0, 1.5, -2.25, 2.0**100, 0.10000000149011612, 10.0, 1.0][n % 7],
        "bt": bytes((n * 3,)),
        "vb": [b"", b"a", b"A", b"a\0", b"\xff", b"a ", b"10"][n % 7],
        "dt": ["2026-01-31 00:00:00.000", "2024-02-29 23:59:59.999", "0000-00-00 00:00:00.000"][n % 3],
        "da": ["2026-01-31", "1999-12-31", "2024-00-00"][n % 3],
        "ts": ["2026-01-31 00:00:00", "2026-01-31 12:00:00"][n % 2],
        "ti": ["00:00:00.00", "-01:30:00.50", "838:59:59.00", "12:00:00.00"][n % 4],
        "y": ["2026", "1901", "0000"][n % 3],
        "e": ["a", "B", "10"][n % 3],
    }


ROWS: list[dict[str, Any]] = [*map(_row, range(len(TEXTS))), dict.fromkeys(_row(0))]


class Server:
    """A table with the rows on a server, and the same rows as the log has them."""

    def __init__(self, database: Database, flavor: str) -> None:
        described = columns(flavor)
        self.structure = TableStructure("expr", "t", tuple(c for c, _ in described), ("id",))
        self.connection = database.connect(charset="utf8mb4", autocommit=True)
        defined = ", ".join(f"{c.name} {kind}" for c, kind in described)
        with self.connection.cursor() as cursor:
            for statement in (
                *SESSION_SETUP,
                "DROP DATABASE IF EXISTS expr",
                "CREATE DATABASE expr",
                "USE expr",
            ):
                cursor.execute(statement)
            cursor.execute(f"CREATE TABLE t ({defined})")
        self.values = []
        render = compile_renderers(self.structure, tuple(c.name for c in self.structure.columns))
        for number, row in enumerate(ROWS):
            value = row_value(insert(self.structure, {"id": number} | row), 0, 0, "")
            self.values.append(value)
            self.connection.query(b"INSERT INTO expr.t VALUES " + render.after(value))
        with self.connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_mode = 'STRICT_ALL_TABLES'")
            cursor.execute(
                "SELECT LOWER(COLUMN_NAME), COLLATION_NAME FROM information_schema.COLUMNS"
                " WHERE TABLE_SCHEMA = 'expr' AND COLLATION_NAME IS NOT NULL"
            )
            self.collations = dict(cursor.fetchall())
        self.seen: Counter[str] = Counter()

    def theirs(self, expression: str, row: int | None = None) -> list[Any]:
        """The expression as a condition, by the server."""
        where = "" if row is None else f" WHERE id = {row}"
        with self.connection.cursor() as cursor:
            cursor.execute(
                f"SELECT ({expression}) IS TRUE, ({expression}) IS NULL FROM expr.t{where} ORDER BY id"
            )
            return [None if null else bool(true) for true, null in cursor.fetchall()]

    def ours(self, expression: str) -> list[Any]:
        """The same by our code; "unevaluable" for a row that it stops at. Raises UnsupportedExpression."""
        coder = ExpressionCompiler(self.structure, self.collations)
        result = coder.condition(parse(expression))
        body = [*value_lines(self.structure, coder.columns, before=False), *coder.lines, f"return {result}"]
        test = compile_function("test", "v", body, value_names(self.structure) | coder.names, "<test>")
        found: list[Any] = []
        for value in self.values:
            try:
                found.append(test(value))
            except Unevaluable:
                found.append("unevaluable")
        return found

    def check(self, expression: str) -> None:
        """Equal for every row where we have a result."""
        try:
            ours = self.ours(expression)
        except UnsupportedExpression:
            self.seen["refused"] += 1
            return
        try:
            theirs = self.theirs(expression)
        except pymysql.MySQLError:
            theirs = [self._one(expression, row) for row in range(len(ours))]
        for row, (mine, server) in enumerate(zip(ours, theirs, strict=True)):
            assert mine == "unevaluable" or mine is server, (expression, mine, server, ROWS[row])
        self.seen["evaluated"] += 1

    def _one(self, expression: str, row: int) -> Any:
        try:
            return self.theirs(expression, row)[0]
        except pymysql.MySQLError as error:
            return error


@pytest.fixture(scope="module", params=["mysql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Server:
    return Server(request.getfixturevalue(f"downstream_{request.param}"), request.param)


NUMERIC = ["i", "u", "b", "ub", "d", "f", "fl", "bt"]
TEXTUAL = ["g", "n", "w", "uc", "l", "e", "vb"]
TEMPORAL = ["dt", "da", "ts", "ti", "y"]
PLAIN = [
    "0",
    "1",
    "-1",
    "10",
    "1.5",
    "0.1",
    "1e1",
    "-2.25",
    "9007199254740993",
    "9223372036854775808",
    "NULL",
]
PLAIN += ["TRUE", "2026", "99999999999999999999", "255"]
QUOTED = ["", "a", "A ", "b", "10", "1.5", "7", "x''y", "a_c", "zZ~", "A\\\\nB", "9007199254740993"]
QUOTED += [
    "2026-01-31",
    "2024-02-29",
    "2026-01-31 00:00:00",
    "2024-02-29 23:59:59.999",
    "12:00:00",
    "-01:30:00.5",
]

NAMES = st.sampled_from(NUMERIC * 2 + TEXTUAL * 2 + TEMPORAL)
LITERALS = st.sampled_from(PLAIN + [f"'{text}'" for text in QUOTED])
SIGNS = st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">=", "<=>"])
NOT = st.sampled_from(["", "NOT "])
OPERATORS = st.sampled_from(["+", "-", "*", "DIV", "%", "&", "|", "^", "<<", ">>"])
NUMBER = st.sampled_from(NUMERIC) | st.sampled_from(
    ["0", "1", "-3", "7", "2.5", "1e1", "18446744073709551615"]
)
ARITHMETIC = st.recursive(
    NUMBER,
    lambda inner: (
        st.builds("({} {} {})".format, inner, OPERATORS, inner)
        | st.builds("{} {} {}".format, inner, OPERATORS, inner)
        | st.builds("{}({})".format, st.sampled_from(["ABS", "-", "~"]), inner)
    ),
    max_leaves=4,
)
TEXT_COLUMN = st.sampled_from(["g", "n", "w", "uc", "l"])
PATTERNS = st.sampled_from(["%", "a%", "A_c", "a\\\\_c", "_", "%1%", "b", "a", "", "\\\\%", "%~"])
CONDITION = st.one_of(
    st.builds("{} {} {}".format, NAMES, SIGNS, LITERALS | NAMES),
    st.builds("{} {} {}".format, LITERALS, SIGNS, NAMES),
    st.builds("{} {} {}".format, ARITHMETIC, SIGNS, ARITHMETIC),
    st.builds("{} {}BETWEEN {} AND {}".format, NAMES, NOT, LITERALS, LITERALS),
    st.builds("{} {}IN ({}, {})".format, NAMES, NOT, LITERALS, LITERALS),
    st.builds("{} {}LIKE '{}'".format, TEXT_COLUMN, NOT, PATTERNS),
    st.builds(
        "{} COLLATE utf8mb4_bin {} '{}'".format,
        st.sampled_from(["g", "w"]),
        SIGNS,
        st.sampled_from(["a", "A ", "B", "ab\t"]),
    ),
    st.builds("{} IS {}{}".format, NAMES, NOT, st.sampled_from(["NULL", "TRUE", "FALSE", "UNKNOWN"])),
    st.builds(
        "{}({}) {} {}".format,
        st.sampled_from(["LENGTH", "CHAR_LENGTH"]),
        TEXT_COLUMN | st.just("vb"),
        SIGNS,
        st.sampled_from(["0", "1", "3"]),
    ),
    st.builds(
        "{}({}, {}) {} {}".format, st.sampled_from(["IFNULL", "COALESCE"]), NAMES, LITERALS, SIGNS, LITERALS
    ),
    NAMES,
)
EXPRESSION = st.recursive(
    CONDITION,
    lambda inner: st.one_of(
        st.builds("{} {} {}".format, inner, st.sampled_from(["AND", "OR", "XOR", "&&", "||"]), inner),
        st.builds("NOT {}".format, inner),
        st.builds("({})".format, inner),
        st.builds("!({})".format, inner),
        st.builds("({}) IS NOT TRUE".format, inner),
    ),
    max_leaves=4,
)


def test_every_expression_has_the_servers_result_or_is_refused(server: Server) -> None:
    @settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))
    @given(EXPRESSION)
    def law(expression: str) -> None:
        server.check(expression)

    law()
    assert server.seen["evaluated"] > server.seen["refused"] / 3, server.seen


@pytest.mark.parametrize(
    "negated", ["!(i XOR NOT d)", "NOT (NOT f XOR i)", "!(i XOR NOT NOT d)", "!(NOT i XOR u)"]
)
def test_an_xor_of_what_is_negated(server: Server, negated: str) -> None:
    server.check(negated)


@pytest.mark.parametrize("operator", ["DIV", "MOD", "*", "+", "-"])
@pytest.mark.parametrize("left", ["b", "i"])
@pytest.mark.parametrize("right", ["b", "i", "1", "-1", "2", "0"])
def test_results_at_the_ends_of_the_range(server: Server, left: str, operator: str, right: str) -> None:
    """-2**63 DIV 1 is out of range for MySQL."""
    for compared in ("0", "i", "b"):
        server.check(f"({left} {operator} {right}) = {compared}")


@pytest.mark.parametrize(
    "members",
    ["1.5, 9223372036854775808", "-1, 1.5", "-1, 1.5, NULL", "ub, 5", "b, 1.5", "b, b", "ub, NULL", "i, u",
     "9223372036854775808, b + 0.5", "(9223372036854775807 + 0), ub"],
)  # fmt: skip
@pytest.mark.parametrize("left", ["b", "ub", "i", "u"])
def test_a_signed_and_an_unsigned_number_among_others(server: Server, left: str, members: str) -> None:
    """MySQL takes -2**63 for 2**63 there."""
    server.check(f"{left} IN ({members})")
    server.check(f"{left} NOT IN ({members})")


@pytest.mark.parametrize(
    "members", ["9223372036854775808, 5", "-1, 5", "-1, NULL", "18446744073709551615, 0", "1, 1.5", "-1"]
)
def test_lists_that_are_compared_as_numbers_are_evaluated(server: Server, members: str) -> None:
    for left in ("b", "ub", "i", "u"):
        assert len(server.ours(f"{left} IN ({members})")) == len(ROWS)
        server.check(f"{left} IN ({members})")


def test_a_column_against_every_literal(server: Server) -> None:
    literals = [f"'{text}'" for text in ("", "a", "A", "a ", "10", "1", "2026-01-31", "12:00:00", "x")]
    literals += ["0", "1", "10", "1.5", "1e1", "NULL", "2026"]
    for name in NUMERIC + TEXTUAL + TEMPORAL:
        for sign in ("=", "<>", "<", ">=", "<=>"):
            for literal in literals:
                server.check(f"{name} {sign} {literal}")
    assert server.seen["evaluated"] > 400


@pytest.mark.parametrize("name", ["g", "w", "uc", "l", "n"])
def test_all_printable_letters_compare_as_on_the_server(server: Server, name: str) -> None:
    """What stands behind every comparison by a collation: each pair of printable ASCII characters."""
    rules = collation(server.collations[name])
    charset = "latin1" if name == "l" else "utf8mb4"
    one = " UNION ALL ".join(
        f"SELECT CONVERT(X'{code:02x}' USING {charset}) COLLATE {server.collations[name]} AS x"
        for code in range(0x20, 0x7F)
    )
    with server.connection.cursor() as cursor:
        cursor.execute(
            "SELECT a.x, b.x, CONCAT(a.x, 'q') = CONCAT(b.x, 'q'), CONCAT(a.x, 'q') < CONCAT(b.x, 'q')"
            f" FROM ({one}) a, ({one}) b"
        )
        found = cursor.fetchall()
    assert len(found) == 95 * 95
    for a, b, equal, less in found:
        left, right = rules.key(a + "q"), rules.key(b + "q")
        assert (left == right) == bool(equal), (a, b)
        if rules.ordered:
            assert (left < right) == bool(less), (a, b)
