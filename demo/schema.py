"""The demo's schema: a table for each feature that is difficult for replication, and some initial rows."""

from __future__ import annotations

from random import Random

from compose.databases import Database
from demo.texts import json_document, person, sentence

DATABASE = "shop"

TABLES = {
    # secondary unique keys, one of them NULL while values move; the parent of a cascade
    "customers": """
        id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
        email VARCHAR(120) NULL UNIQUE,
        nickname VARCHAR(60) COLLATE utf8mb4_bin NULL,
        bio TEXT,
        preferences JSON,
        tier ENUM('bronze', 'silver', 'gold') NOT NULL DEFAULT 'bronze',
        created_at DATETIME(6) NOT NULL,
        seen_at TIMESTAMP(3) NULL,
        UNIQUE KEY by_nickname (nickname)""",
    "addresses": """
        id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
        customer_id BIGINT UNSIGNED NOT NULL,
        street VARCHAR(200) NOT NULL,
        place POINT NULL,
        FOREIGN KEY (customer_id) REFERENCES customers (id) ON DELETE CASCADE""",
    "categories": """
        id SMALLINT UNSIGNED NOT NULL PRIMARY KEY,
        name VARCHAR(80) NOT NULL UNIQUE,
        parent_id SMALLINT UNSIGNED NULL""",
    "products": """
        sku CHAR(10) NOT NULL PRIMARY KEY,
        category_id SMALLINT UNSIGNED NOT NULL,
        name VARCHAR(120) NOT NULL,
        price DECIMAL(12,4) NOT NULL,
        attributes JSON,
        thumbnail BLOB,
        FOREIGN KEY (category_id) REFERENCES categories (id)""",
    # composite keys
    "stock": """
        warehouse TINYINT UNSIGNED NOT NULL,
        sku CHAR(10) NOT NULL,
        quantity INT NOT NULL,
        reserved MEDIUMINT NOT NULL DEFAULT 0,
        counted_at DATETIME(6) NULL,
        PRIMARY KEY (warehouse, sku)""",
    "orders": """
        id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
        customer_id BIGINT UNSIGNED NULL,
        status ENUM('open', 'paid', 'shipped', 'returned') NOT NULL DEFAULT 'open',
        total DECIMAL(20,2) NOT NULL,
        placed_at DATETIME(6) NOT NULL,
        note VARCHAR(200) NULL""",
    "order_lines": """
        order_id BIGINT NOT NULL,
        line SMALLINT UNSIGNED NOT NULL,
        sku CHAR(10) NOT NULL,
        amount INT UNSIGNED NOT NULL,
        price DECIMAL(12,4) NOT NULL,
        PRIMARY KEY (order_id, line)""",
    # unique values that move from row to row
    "seats": """
        id INT UNSIGNED NOT NULL PRIMARY KEY,
        holder VARCHAR(60) NULL,
        booking CHAR(8) CHARACTER SET ascii NULL,
        UNIQUE KEY by_holder (holder),
        UNIQUE KEY by_booking (booking)""",
    # no key at all, and rows that occur twice
    "readings": """
        sensor VARCHAR(20) NOT NULL,
        at DATETIME(6) NOT NULL,
        celsius DOUBLE NULL,
        raw VARBINARY(16) NULL""",
    "documents": """
        path VARCHAR(150) NOT NULL PRIMARY KEY,
        title TINYTEXT,
        body MEDIUMTEXT,
        content BLOB,
        flags SET('draft', 'public', 'archived') NOT NULL DEFAULT '',
        bits BIT(12) NULL""",
    "sessions": """
        token BINARY(16) NOT NULL PRIMARY KEY,
        customer_id BIGINT UNSIGNED NULL,
        ratio FLOAT NULL,
        lasted TIME(3) NULL,
        birthday DATE NULL,
        vintage YEAR NULL,
        expires_at TIMESTAMP(6) NULL""",
    # rows sent at known times, to measure the lag
    "probes": """
        id BIGINT NOT NULL PRIMARY KEY,
        sent_at DOUBLE NOT NULL""",
}

PRODUCTS, SEATS, CATEGORIES = 200, 80, 12


def sku(number: int) -> str:
    return f"SKU-{number:06d}"


def create(upstream: Database) -> None:
    """Create the schema with a few initial rows."""
    statements = [f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4", f"USE {DATABASE}"]
    statements += [f"CREATE TABLE {name} ({columns})" for name, columns in TABLES.items()]
    upstream.execute(*statements)
    rng = Random(1)
    with upstream.connect(database=DATABASE) as connection, connection.cursor() as cursor:
        categories = [(i, f"{person(rng)} № {i}", i // 3 or None) for i in range(1, CATEGORIES + 1)]
        cursor.executemany("INSERT INTO categories VALUES (%s, %s, %s)", categories)
        products = [
            (sku(i), rng.randint(1, CATEGORIES), sentence(rng, 3), rng.uniform(1, 900), json_document(rng))
            for i in range(PRODUCTS)
        ]
        cursor.executemany("INSERT INTO products VALUES (%s, %s, %s, %s, %s, NULL)", products)
        cursor.executemany("INSERT INTO seats (id) VALUES (%s)", [(i,) for i in range(SEATS)])
        stock = [(w, sku(i), rng.randint(0, 500)) for w in range(3) for i in range(PRODUCTS)]
        cursor.executemany("INSERT INTO stock (warehouse, sku, quantity) VALUES (%s, %s, %s)", stock)
