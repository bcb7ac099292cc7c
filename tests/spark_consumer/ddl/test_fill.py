"""Which ALTERs fill rows with values that another server would not find again."""

from __future__ import annotations

import pytest

from schemas.ddl.lexer import Flavor
from spark_consumer.ddl.alter_values import nondeterministic_values


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("ALTER TABLE t ADD c CHAR(36) DEFAULT (UUID())", "UUID"),
        ("ALTER TABLE t ADD COLUMN IF NOT EXISTS c CHAR(36) DEFAULT uuid()", "UUID"),
        ("ALTER TABLE t ADD (a INT, c DOUBLE DEFAULT RAND())", "RAND"),
        ("ALTER TABLE t DROP x, ADD c DATETIME DEFAULT (SYSDATE(6)), ALGORITHM=COPY", "SYSDATE"),
        ("ALTER TABLE t ADD c BIGINT DEFAULT NEXT VALUE FOR s", "sequence"),
        ("ALTER TABLE t ADD c BIGINT DEFAULT nextval(s)", "NEXTVAL"),
        ("ALTER TABLE t ADD id INT AUTO_INCREMENT PRIMARY KEY FIRST", "numbered"),
        ("ALTER TABLE t ADD id INT NOT NULL AUTO_INCREMENT, ADD PRIMARY KEY (id)", "numbered"),
        ("/*!50500 ALTER TABLE t ADD id SERIAL PRIMARY KEY */", "numbered"),
    ],
)
@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_what_is_not_in_the_log(statement: str, says: str, flavor: Flavor) -> None:
    assert says in nondeterministic_values(statement, flavor)


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t ADD c INT DEFAULT 1",
        "ALTER TABLE t ADD c DATETIME DEFAULT CURRENT_TIMESTAMP ON UPDATE NOW()",
        "ALTER TABLE t ADD c VARCHAR(9) DEFAULT 'UUID()' COMMENT 'RAND()'",
        "ALTER TABLE t ALTER c SET DEFAULT (UUID())",
        "ALTER TABLE t MODIFY c CHAR(36) DEFAULT (UUID())",
        "ALTER TABLE t ADD user INT, ADD `uuid` CHAR(36), ADD INDEX (user)",
        "ALTER TABLE t ADD n BIGINT AUTO_INCREMENT UNIQUE",
        "ALTER TABLE t DROP PRIMARY KEY, ADD n INT AUTO_INCREMENT PRIMARY KEY FIRST",
        "ALTER TABLE t AUTO_INCREMENT = 5, ADD PRIMARY KEY (a)",
        "ALTER TABLE t ADD CONSTRAINT CHECK (LENGTH(USER()) > 0), ADD c INT DEFAULT 0",
        "ALTER TABLE t ADD PARTITION (PARTITION p VALUES LESS THAN (UUID_SHORT()))",
    ],
)
@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_what_comes_out_the_same(statement: str, flavor: Flavor) -> None:
    assert nondeterministic_values(statement, flavor) == ""
