"""Long-running commands: their children, signals, progress and logs."""
