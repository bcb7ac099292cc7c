"""The consumer or its parts in this process, and what it applies to."""
