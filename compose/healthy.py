"""The image's health check: every Tailrace process of the container says that it is ready, and there is one.

It asks the ports that ``[metrics] listen`` gives to processes by default. Exit code 1: not healthy.
"""

from __future__ import annotations

import http.client
import sys
from collections.abc import Iterable

PORTS = range(9464, 9480)
_TIMEOUT_S = 5.0


def main(ports: Iterable[int] = PORTS) -> int:
    """Ask all ports, and return the exit code."""
    answers = [status for status in map(_ask, ports) if status is not None]
    return 0 if answers and all(status == 200 for status in answers) else 1


def _ask(port: int) -> int | None:
    """Return the status of /readyz, 0 if the process does not answer, None if nobody listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status
    except ConnectionRefusedError:
        return None
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main())
