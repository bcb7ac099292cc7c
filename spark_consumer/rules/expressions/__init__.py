"""Expression filters: SQL conditions on rows, compiled to Python."""


class UnsupportedExpression(Exception):
    """An expression that the filter does not read or evaluate; the text is one clause for the error."""
