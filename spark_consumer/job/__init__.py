"""The Spark session, the query, its checkpoint, and the rewind of a channel."""
