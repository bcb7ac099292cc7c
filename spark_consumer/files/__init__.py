"""A folder of Parquet files as a channel's target: every change of every table, each once."""
