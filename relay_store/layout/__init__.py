"""The relay directory: its files, their names and heads, who reads them, who may change them."""
