"""Storage engines in the text of CREATE TABLE and ALTER TABLE."""

from __future__ import annotations

from typing import get_args

import pytest

from schemas.ddl.engine import has_foreign_key, takes_default_engine, with_innodb
from schemas.ddl.lexer import Flavor
from schemas.wire.epoch import SchemaChanged
from spark_consumer.ddl.translate import in_innodb as carried_in_innodb


@pytest.mark.parametrize(
    ("statement", "default"),
    [
        ("CREATE TABLE t (id INT PRIMARY KEY)", True),
        ("CREATE TABLE t (engine INT, b VARCHAR(9) DEFAULT 'ENGINE=CSV') COMMENT = 'ENGINE=CSV'", True),
        ("CREATE TABLE t (a INT) ENGINE=MyISAM", False),
        ("CREATE TABLE t (a INT) /*!40101 ENGINE = 'InnoDB' */", False),
        ("CREATE TABLE t (a INT) /* ENGINE=InnoDB */", True),
        ("CREATE TABLE t (a INT) PARTITION BY HASH (a) (PARTITION p0 ENGINE=InnoDB)", False),
        ("CREATE TABLE t (a INT) WITH SYSTEM VERSIONING ENGINE `Aria`", False),
        ("CREATE TABLE t LIKE u", False),
        ("CREATE TABLE t (LIKE u)", False),
        ("CREATE TABLE t (a VARCHAR(9), CHECK (a LIKE 'x'))", True),
        ("CREATE TABLE t (a INT) AS SELECT engine = 'x' AS a FROM u", True),
        ("CREATE TABLE t SELECT * FROM u WHERE a LIKE 'x'", True),
    ],
)
def test_a_statement_names_its_engine_or_takes_the_default(statement: str, default: bool) -> None:
    for flavor in get_args(Flavor):
        assert takes_default_engine(statement, flavor) is default


@pytest.mark.parametrize(
    ("statement", "there"),
    [
        (
            "CREATE TABLE t (a INT) ENGINE=MyISAM CHECKSUM=1",
            "CREATE TABLE t (a INT) ENGINE=InnoDB CHECKSUM=1",
        ),
        ("ALTER TABLE t ENGINE 'Aria', ADD b INT", "ALTER TABLE t ENGINE InnoDB, ADD b INT"),
        ("ALTER TABLE t ADD engine INT, engine=`memory`", "ALTER TABLE t ADD engine INT, engine=InnoDB"),
        ("ALTER TABLE t ADD (engine INT)", "ALTER TABLE t ADD (engine INT)"),
        (
            "CREATE TABLE t (a INT) ENGINE=MERGE UNION=(b, c)",
            "CREATE TABLE t (a INT) ENGINE=MERGE UNION=(b, c)",
        ),
        ("CREATE TABLE t (a INT) ENGINE=BLACKHOLE", "CREATE TABLE t (a INT) ENGINE=BLACKHOLE"),
        (
            "CREATE TABLE t (a INT) ENGINE=MyISAM PARTITION BY HASH (a) (PARTITION p ENGINE = MyISAM)",
            "CREATE TABLE t (a INT) ENGINE=InnoDB PARTITION BY HASH (a) (PARTITION p ENGINE = InnoDB)",
        ),
        ("CREATE TABLE t (a INT) COMMENT 'ENGINE=MyISAM'", "CREATE TABLE t (a INT) COMMENT 'ENGINE=MyISAM'"),
    ],
)
def test_engines_without_transactions_become_innodb(statement: str, there: str) -> None:
    assert with_innodb(statement, "mariadb") == there


def test_so_does_one_that_is_taken_by_default() -> None:
    ddl = SchemaChanged("CREATE TABLE t (a INT)", "d", "CREATE TABLE", (), "mysql", 0)
    assert carried_in_innodb(ddl) == ddl
    from_session = SchemaChanged(
        ddl.statement, "d", "CREATE TABLE", (), "mysql", 0, settings=(("default_storage_engine", "MyISAM"),)
    )
    made = dict(carried_in_innodb(from_session).settings)
    assert made == {"default_storage_engine": "InnoDB", "innodb_strict_mode": "0"}


def test_foreign_keys_are_seen() -> None:
    assert has_foreign_key("CREATE TABLE t (a INT REFERENCES u (a))", "mysql")
    assert not has_foreign_key("CREATE TABLE t (a INT COMMENT 'REFERENCES')", "mysql")
