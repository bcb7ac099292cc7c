"""A producer process that a test may kill. Argument: a JSON object of the configuration's values.

After SIGTERM it stops cleanly. After a TailraceError it prints the code and exits with 3.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from pathlib import Path


def main() -> int:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    # Imported here, since on a busy machine this takes longer than a test waits before it stops the process.
    from producer.epochs.open_epoch import EpochLimits
    from producer.run import ProducerConfig
    from producer.settings import CopySettings, RelaySettings
    from relay_store.purge.purge import PurgeRules
    from schemas.access.kafka_security import KafkaSecurity
    from schemas.access.server_url import ServerUrl
    from schemas.errors import TailraceError
    from tailrace.assemble.producer import producer

    values = json.loads(sys.argv[1])
    values["source"] = ServerUrl.parse(values["source"])
    values["relay"] = RelaySettings(**values["relay"] | {"dir": Path(values["relay"]["dir"])})
    values["copy"] = CopySettings(**values["copy"])
    values["epoch"] = EpochLimits(**values["epoch"])
    values |= {name: tuple(values[name]) for name in ("include", "exclude")}
    values["purge"] = PurgeRules(**values["purge"])
    values["kafka_security"] = KafkaSecurity(**values["kafka_security"])
    try:
        producer(ProducerConfig(**values)).run(stop)
    except TailraceError as error:
        print(error.code, flush=True)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
