"""``tailrace topic`` and ``tailrace schema``: show the content of the epoch log."""
