"""Paths in the checkout."""

from __future__ import annotations

from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
GOLDEN = CHECKOUT / "tests" / "golden"
PROGRAMS = CHECKOUT / "tests" / "support" / "programs"
