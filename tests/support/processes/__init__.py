"""Runs programs as users do, and disturbs them."""
