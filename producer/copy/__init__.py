"""Copies tables into the epoch log while their changes go on."""
