"""The actions of the demo's users. Each actor is one transaction on the shop, with random choices."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random
from typing import Any

from pymysql.cursors import Cursor

from demo.schema import CATEGORIES, PRODUCTS, SEATS, sku
from demo.texts import json_document, maybe, person, sentence

Actor = Callable[[Cursor, Random], None]


def _some(cursor: Cursor, rng: Random, table: str, column: str = "id", count: int = 1) -> list[Any]:
    """Return up to ``count`` neighboring keys from a random position in a table with a numeric key."""
    cursor.execute(
        f"SELECT {column} FROM {table} WHERE {column} >= %s * (SELECT MAX({column}) FROM {table})"
        f" ORDER BY {column} LIMIT {count}",
        (rng.random() * 0.98,),
    )
    return [row[0] for row in cursor.fetchall()]


def _moment(rng: Random) -> datetime:
    return datetime(2024, 2, 29) + timedelta(microseconds=rng.randrange(10**15))


def sign_up(cursor: Cursor, rng: Random) -> None:
    name = person(rng)
    cursor.execute(
        "INSERT INTO customers (email, nickname, bio, preferences, tier, created_at, seen_at)"
        " VALUES (%s, %s, %s, %s, %s, %s, NOW(3))",
        (
            maybe(rng, f"{name.lower()}.{rng.randrange(10**7)}@example.org"),
            maybe(rng, f"{name}{rng.randrange(10**7)}"),
            maybe(rng, sentence(rng, rng.randint(1, 60))),
            json_document(rng),
            rng.choice(["bronze", "silver", "gold"]),
            _moment(rng),
        ),
    )
    customer = cursor.lastrowid
    for _ in range(rng.randint(1, 3)):
        cursor.execute(
            "INSERT INTO addresses (customer_id, street, place) VALUES (%s, %s, POINT(%s, %s))",
            (customer, f"{sentence(rng, 2)} {rng.randint(1, 99)}", rng.random(), rng.random()),
        )


def edit_profile(cursor: Cursor, rng: Random) -> None:
    for customer in _some(cursor, rng, "customers", count=3):
        cursor.execute(
            "UPDATE customers SET bio = %s, preferences = %s, seen_at = NOW(3) WHERE id = %s",
            (maybe(rng, sentence(rng, 20)), json_document(rng), customer),
        )


def swap_emails(cursor: Cursor, rng: Random) -> None:
    """Two customers swap a unique value; in between, one of them has none."""
    pair = _some(cursor, rng, "customers", count=2)
    cursor.execute("SELECT id, email FROM customers WHERE id IN %s ORDER BY id FOR UPDATE", (pair or [0],))
    if len(found := list(cursor.fetchall())) == 2:
        (one, first), (two, second) = found
        cursor.execute("UPDATE customers SET email = NULL WHERE id = %s", (one,))
        cursor.execute("UPDATE customers SET email = %s WHERE id = %s", (first, two))
        cursor.execute("UPDATE customers SET email = %s WHERE id = %s", (second, one))


def leave(cursor: Cursor, rng: Random) -> None:
    """Delete a customer; the cascade deletes the addresses, which is not in MariaDB's binlog."""
    for customer in _some(cursor, rng, "customers"):
        cursor.execute("DELETE FROM customers WHERE id = %s", (customer,))


def place_order(cursor: Cursor, rng: Random) -> None:
    cursor.execute(
        "INSERT INTO orders (customer_id, total, placed_at, note) VALUES (%s, %s, NOW(6), %s)",
        (maybe(rng, rng.randrange(10**6)), f"{rng.uniform(-5, 10**9):.2f}", maybe(rng, sentence(rng, 4))),
    )
    order = cursor.lastrowid
    lines = [
        (order, line, sku(rng.randrange(PRODUCTS)), rng.randint(1, 9), f"{rng.uniform(0, 500):.4f}")
        for line in range(1, rng.randint(3, 10))
    ]
    cursor.executemany("INSERT INTO order_lines VALUES (%s, %s, %s, %s, %s)", lines)
    for _, _, product, amount, _ in lines:
        cursor.execute(
            "UPDATE stock SET quantity = quantity - %s WHERE warehouse = %s AND sku = %s",
            (amount, rng.randrange(3), product),
        )


def move_on(cursor: Cursor, rng: Random) -> None:
    """Change the states of orders, with several changes to the same row."""
    for order in _some(cursor, rng, "orders", count=4):
        for status in ("paid", "shipped")[: rng.randint(1, 2)]:
            cursor.execute("UPDATE orders SET status = %s WHERE id = %s", (status, order))


def renumber(cursor: Cursor, rng: Random) -> None:
    """Change a composite key of every line; no line is deleted or inserted."""
    shift = rng.randint(1, 40)
    for order in _some(cursor, rng, "orders"):
        cursor.execute(
            "UPDATE order_lines SET line = line + %s WHERE order_id = %s AND line < 60000 ORDER BY line DESC",
            (shift, order),
        )


def cancel(cursor: Cursor, rng: Random) -> None:
    for order in _some(cursor, rng, "orders", count=2):
        cursor.execute("DELETE FROM order_lines WHERE order_id = %s", (order,))
        cursor.execute("DELETE FROM orders WHERE id = %s", (order,))


def reprice(cursor: Cursor, rng: Random) -> None:
    category = rng.randint(1, CATEGORIES)
    cursor.execute("UPDATE products SET price = price * 1.0101 WHERE category_id = %s", (category,))
    cursor.execute(
        "UPDATE products SET thumbnail = %s, attributes = %s WHERE sku = %s",
        (maybe(rng, rng.randbytes(rng.randint(0, 2000))), json_document(rng), sku(rng.randrange(PRODUCTS))),
    )


def count_stock(cursor: Cursor, rng: Random) -> None:
    """Move rows with a composite key to another warehouse and back, then count one of them."""
    product = sku(rng.randrange(PRODUCTS))
    cursor.execute(
        "UPDATE stock SET warehouse = warehouse + 100 WHERE sku = %s AND warehouse < 3", (product,)
    )
    cursor.execute(
        "UPDATE stock SET warehouse = warehouse - 100 WHERE sku = %s AND warehouse > 3", (product,)
    )
    cursor.execute(
        "INSERT INTO stock (warehouse, sku, quantity) VALUES (%s, %s, %s)"
        " ON DUPLICATE KEY UPDATE quantity = VALUES(quantity), counted_at = NOW(6)",
        (rng.randrange(3), product, rng.randint(0, 500)),
    )


def change_seats(cursor: Cursor, rng: Random) -> None:
    """Exchange the holders and bookings of two seats."""
    one, two = rng.sample(range(SEATS), 2)
    query = "SELECT id, holder, booking FROM seats WHERE id IN (%s, %s) ORDER BY id FOR UPDATE"
    cursor.execute(query, (one, two))
    (one, *first), (two, *second) = cursor.fetchall()
    if rng.random() < 0.4:
        first = [f"{person(rng)} {rng.randrange(10**6)}", f"{rng.randrange(10**8):08d}"]
    cursor.execute("UPDATE seats SET holder = NULL, booking = NULL WHERE id IN (%s, %s)", (one, two))
    cursor.execute("UPDATE seats SET holder = %s, booking = %s WHERE id = %s", (*first, two))
    cursor.execute("UPDATE seats SET holder = %s, booking = %s WHERE id = %s", (*second, one))


def measure(cursor: Cursor, rng: Random) -> None:
    """Change or delete one of several equal rows in a table without a key."""
    sensor = f"sensor-{rng.randrange(6)}"
    row = (sensor, _moment(rng), maybe(rng, rng.gauss(8, 3)), maybe(rng, rng.randbytes(8)))
    cursor.executemany("INSERT INTO readings VALUES (%s, %s, %s, %s)", [row] * rng.randint(1, 3))
    if rng.random() < 0.4:
        cursor.execute("UPDATE readings SET celsius = celsius + 0.1 WHERE sensor = %s LIMIT 2", (sensor,))
    if rng.random() < 0.4:
        cursor.execute("DELETE FROM readings WHERE sensor = %s LIMIT 2", (sensor,))


def write_document(cursor: Cursor, rng: Random) -> None:
    path = f"/{person(rng)}/{rng.randrange(400)}.md"
    body = sentence(rng, rng.randint(0, 300))
    row = (
        path,
        sentence(rng, 2),
        maybe(rng, body),
        maybe(rng, rng.randbytes(300)),
        rng.choice(["", "draft,public"]),
    )
    cursor.execute(
        "REPLACE INTO documents (path, title, body, content, flags) VALUES (%s, %s, %s, %s, %s)", row
    )
    if rng.random() < 0.3:
        moved = f"/moved{path[:100]}-{rng.randrange(10**6)}"
        cursor.execute("UPDATE documents SET path = %s, bits = b'101' WHERE path = %s", (moved, path))


def use_session(cursor: Cursor, rng: Random) -> None:
    values = (
        rng.randbytes(16), rng.randrange(10**6), rng.random(), timedelta(milliseconds=rng.randint(-10**9, 10**9)),
        maybe(rng, _moment(rng).date()), rng.randint(1950, 2050),
    )  # fmt: skip
    cursor.execute("INSERT INTO sessions VALUES (%s, %s, %s, %s, %s, %s, NOW(6))", values)
    if rng.random() < 0.5:
        cursor.execute("UPDATE sessions SET expires_at = NULL, ratio = -ratio WHERE token = %s", values[:1])
    if rng.random() < 0.4:
        cursor.execute("DELETE FROM sessions WHERE token = %s", values[:1])


ACTORS: dict[Actor, int] = {
    sign_up: 10,
    edit_profile: 8,
    swap_emails: 5,
    leave: 3,
    place_order: 18,
    move_on: 10,
    renumber: 6,
    cancel: 5,
    reprice: 4,
    count_stock: 8,
    change_seats: 8,
    measure: 6,
    write_document: 8,
    use_session: 8,
}
