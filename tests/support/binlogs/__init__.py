"""Binlog events and files: made up, read back, tracked, damaged, and as a mirror gets them."""
