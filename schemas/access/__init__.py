"""Logging in to servers and Kafka, and keeping passwords and files private."""
