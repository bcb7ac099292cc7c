"""Statements of every kind: types and values, DDL, views, work for a server."""
