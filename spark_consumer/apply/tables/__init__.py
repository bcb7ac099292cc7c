"""Our own tables on the downstream: the position, the audit, errors and decisions."""
