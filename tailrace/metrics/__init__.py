"""Metrics for Prometheus, and whether a process is alive and ready."""
