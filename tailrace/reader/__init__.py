"""A library to write your own consumers with: reads the epochs of the log in order, rows in upstream order.

::

    from tailrace.reader import EpochReader

    with EpochReader("127.0.0.1:9092", "shop") as log:
        for epoch in log.epochs("earliest", follow=True):
            for row in log.rows(epoch):
                print(epoch.epoch, row.op, row.table, row.key, row.after)

It commits no offsets. A consumer stores the number of the last epoch that it has processed, best in the same
transaction as its own changes, and continues with ``epochs(f"epoch:{number + 1}")``. For readers in other languages
see docs/FORMAT.md.
"""

from tailrace.reader.log import EpochReader
from tailrace.reader.rows import Row

__all__ = ["EpochReader", "Row"]
