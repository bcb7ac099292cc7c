"""What is on the wire between producer and consumer: rows and epoch records, byte by byte."""
