"""From an upstream's DDL to the statements that the downstream runs."""
