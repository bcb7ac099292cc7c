"""The upstream's binlog into the relay log, byte for byte."""
