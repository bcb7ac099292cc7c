"""The composition root: makes each process's settings from the configuration, and constructs its parts.

Only commands import it. No part knows how another one is made: it receives the others, or a function that makes them.
"""
