"""The upstream server: what it says about itself, and its binlog as a stream of raw events."""
