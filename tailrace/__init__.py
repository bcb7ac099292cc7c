"""The application: command line, configuration, checks, status, comparison and recovery."""
