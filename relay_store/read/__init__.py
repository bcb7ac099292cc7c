"""Reading it: in blocks of whole events, from a place, as far as it is on disk."""
