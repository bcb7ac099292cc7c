"""The page: recorded states of a pipeline, and a server of it without one."""
