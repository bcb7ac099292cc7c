"""Names for what belongs to one test."""

from __future__ import annotations

import pytest


def own_name(prefix: str, request: pytest.FixtureRequest, most: int = 40) -> str:
    """A name for a database, channel or topic that no other test has; each module has a prefix of its own."""
    return prefix + "".join(c if c.isalnum() else "_" for c in request.node.name)[-most:]
