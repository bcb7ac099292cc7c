"""A mirror process that a test may kill. Arguments: address, relay directory, server id, max-file-size."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from producer.mirror.loop import Mirror
from producer.settings import RelaySettings
from relay_store.write.writer import RelayWriter
from schemas.access.server_url import ServerUrl

if __name__ == "__main__":
    address, root, server_id, max_file_size = sys.argv[1:]
    Mirror(
        ServerUrl.parse(address),
        RelayWriter.open(Path(root)),
        RelaySettings(max_file_size=int(max_file_size)),
        server_id=int(server_id),
    ).run(threading.Event())
