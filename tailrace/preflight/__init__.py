"""Checks before replication runs: facts are read from the servers and turned into findings.

``gather``, ``programs`` and ``copy_facts`` read from servers; the other modules are pure functions from facts to
findings.
"""
