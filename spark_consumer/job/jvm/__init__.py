"""Starts Spark's JVM, guards its connections, and knows its end."""
