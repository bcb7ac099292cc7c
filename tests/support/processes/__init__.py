"""Programs as their users run them, and what may happen to them."""
