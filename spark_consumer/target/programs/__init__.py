"""Triggers, routines and events of the downstream: their text, and who may see them."""
