"""A process that decodes blocks: ``python -m producer.ahead.worker mysql|mariadb fingerprints|ids``.

It reads blocks from stdin and writes what it decoded to stdout, and ends with its stdin: so with its parent, however
that ends. It has no connection and no file but these.
"""

from __future__ import annotations

import os
import signal
import sys
from struct import Struct
from typing import IO

#: the size of the piece that follows
SIZE = Struct("<Q")
#: what the argument says of the names of schemas on the wire
FINGERPRINTS, IDS = "fingerprints", "ids"


def send(stream: IO[bytes], piece: bytes) -> None:
    """Send a piece, which may be empty. Raises OSError."""
    stream.write(SIZE.pack(len(piece)))
    stream.write(piece)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes:
    """The next piece. Raises EOFError: the other side is gone."""
    head = stream.read(SIZE.size)
    if len(head) < SIZE.size:
        raise EOFError("the other process is gone")
    (size,) = SIZE.unpack(head)
    piece = stream.read(size)
    if len(piece) < size:
        raise EOFError("the other process is gone")
    return piece


def main() -> None:
    """Decode until stdin ends."""
    # A stop is the parent's business: it may need what is decoded here to complete an epoch.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # What is printed by anything must not get between the pieces.
    blocks, decoded = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    from schemas.interpreter import collect_seldom, import_structlog

    import_structlog()
    from producer.decode.decoded_groups import BlockToDecode
    from producer.decode.group_decoder import GroupDecoder
    from schemas.gtid.sets import Flavor

    collect_seldom()
    flavor: Flavor = "mariadb" if sys.argv[1] == "mariadb" else "mysql"
    decoder = GroupDecoder(flavor, by_fingerprint=sys.argv[2] == FINGERPRINTS)
    try:
        send(decoded, b"")
        while True:
            send(decoded, decoder.decode(BlockToDecode.decoded(receive(blocks))).encode())
    except (EOFError, BrokenPipeError):
        # Nobody is there to whom buffered bytes could go.
        os._exit(0)


if __name__ == "__main__":
    main()
