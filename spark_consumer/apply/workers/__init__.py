"""A slice in parts, each in the transaction of one worker."""
