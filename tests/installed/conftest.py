"""One installation for all tests of this folder."""

from __future__ import annotations

import pytest

from tests.support.processes.installed import Installed


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Tailrace from a wheel, in an environment of its own."""
    return Installed(tmp_path_factory.mktemp("installed"))
