"""The wire format between producer and consumer: rows and epoch records, byte by byte."""
