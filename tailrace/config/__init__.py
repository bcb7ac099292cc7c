"""The one model of the configuration, read from file and environment."""
