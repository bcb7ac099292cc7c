"""Triggers, routines and events of the downstream: what their text does, and which accounts can read it."""
