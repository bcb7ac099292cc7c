"""Blocks of a backlog, decoded by other processes before the publisher comes to them."""
