"""The Spark session, the query, its checkpoint, and moving a channel back."""
