"""On the executors: rows read, compacted and rendered."""
