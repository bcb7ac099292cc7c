"""A DDL that was interrupted: what its objects looked like before, and what of it is left to do."""
