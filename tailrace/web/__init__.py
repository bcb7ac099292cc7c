"""The page of one pipeline and its JSON interface: what is seen, kept, shown, and done with a token."""
