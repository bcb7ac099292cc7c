"""Supports long-running commands: child processes, signals, progress and logs."""
