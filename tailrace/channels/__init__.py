"""The channels on the targets, and an operator's decisions about them."""
