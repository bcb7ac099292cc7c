"""How servers and Kafka are logged into, and how their secrets and our files are kept."""
