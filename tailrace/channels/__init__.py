"""The channels that targets know, and what an operator decides about them."""
