"""What the text of a statement says: its tokens, its kind, and the names in it."""
