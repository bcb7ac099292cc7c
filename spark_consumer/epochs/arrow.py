"""Arrow record batches, in which Python workers return rows to Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa


def record_batch(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Return a record batch of these rows; without rows an empty one."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
