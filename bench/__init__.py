"""The benchmark: how fast each part and the whole drain one fixed backlog, beside two peers in the same run."""
