"""Functions that Numba compiles beforehand, and how a process calls them without loading Numba."""
