"""Change files in Parquet, and the folder's own position."""
