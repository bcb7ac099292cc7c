"""The fields of what the compiled code is told and tells."""

from __future__ import annotations

#: of a column: how its value is written (a form of ``schemas.types.parameter``), the union branch of a value that has
#: this form or -1 without a union, whether it may be NULL, and the form's detail
FORM, TAG, NULLABLE, DETAIL = range(4)

#: where a row's values end, its number in the epoch, and twice its epoch; the last two if its place is asked for
END, SEQ, EPOCH, ROW_FIELDS = range(4)

#: whether places are asked for, and how many rows were written before one that is left to Python
PLACED, WRITTEN = range(2)

#: how many rows were compared before one that is left to Python
COMPARED = 0

#: bits of NULLs in a word
WORD_BITS = 64
