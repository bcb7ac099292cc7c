"""Where batches go: a server, or change files."""
