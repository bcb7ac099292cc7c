"""The benchmark: how fast each part and the whole process a fixed backlog, compared with two other programs."""
