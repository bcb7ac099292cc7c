"""The configuration: its model, read from file and environment, and the values that other packages need from it."""
