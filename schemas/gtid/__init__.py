"""GTID sets of both servers, as immutable values."""
