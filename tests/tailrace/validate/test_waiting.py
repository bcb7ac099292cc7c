"""How long a validation waits for a channel."""

from __future__ import annotations

from itertools import chain, count, repeat
from math import inf

from tailrace.validate.servers import wait_while_moving


def test_a_channel_that_moves_is_waited_for_longer_than_one_that_does_not() -> None:
    patience = 0.3
    moves = count()
    assert wait_while_moving(lambda: next(moves), lambda at: at > 8, patience, inf, None) is None
    stands = chain(range(3), repeat(3))
    assert wait_while_moving(lambda: next(stands), lambda at: at > 3, patience, inf, None) == 3
    assert next(moves) == 10


def test_a_channel_that_moves_is_not_waited_for_for_ever_if_that_is_asked() -> None:
    moves = count()
    given_up = wait_while_moving(lambda: next(moves), lambda at: False, 60, 0.3, None)
    assert given_up is not None
    assert given_up > 0


def test_a_channel_that_stands_where_it_was_given_up_is_not_waited_for_again() -> None:
    looks = count()
    assert wait_while_moving(lambda: next(looks) * 0 + 7, lambda at: False, inf, inf, 7) == 7
    assert next(looks) == 1
