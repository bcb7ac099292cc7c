"""Table structures tracked along the log, for TABLE_MAP events that do not say all there is to know."""
