"""Decodes every row of the relay log with our decoder and with mysql-replication, and compares the values."""
