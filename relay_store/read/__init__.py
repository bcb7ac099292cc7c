"""Reading the relay log: blocks of whole events, from a position, as far as it is on disk."""
