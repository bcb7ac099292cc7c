"""Fetches or builds jars and archives once and keeps them in a cache."""
