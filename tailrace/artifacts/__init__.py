"""Jars and archives that are fetched or made once and kept in a cache."""
