"""Decodes transactions of rows in code that Numba compiles: what most of a binlog consists of."""
