"""A channel's rules: which rows and DDL it replicates, and under which names."""
