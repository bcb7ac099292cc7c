"""The one error of the stack: what happened, and what to do about it."""

from __future__ import annotations


class StackError(Exception):
    """A server or an artifact of the stack is not to be had.

    ``code`` is a stable word for programs, ``what`` says what happened and where, ``hint`` the remedy.
    """

    def __init__(self, code: str, what: str, hint: str = "") -> None:
        self.code = code
        self.what = what
        self.hint = hint
        super().__init__(f"[{code}] {what}" + (f" - {hint}" if hint else ""))
