"""``tailrace topic`` and ``tailrace schema``: what is in the epoch log."""
