"""Reading the relay log: blocks of complete events, from a position up to the last synced event."""
