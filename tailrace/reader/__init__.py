"""A library that reads the epoch log, for consumers of your own: epochs in order, rows in upstream order.

::

    from tailrace.reader import EpochReader

    with EpochReader("127.0.0.1:9092", "shop") as log:
        for epoch in log.epochs("earliest", follow=True):
            for row in log.rows(epoch):
                print(epoch.epoch, row.op, row.table, row.key, row.after)

It commits no offsets: a consumer keeps the number of the last epoch that it has dealt with, best in the transaction
of its own effects, and goes on with ``epochs(f"epoch:{number + 1}")``. Readers in other languages follow
docs/FORMAT.md.
"""

from tailrace.reader.log import EpochReader
from tailrace.reader.rows import Row

__all__ = ["EpochReader", "Row"]
