"""The log: epochs, places in it, slices of it, and the schema tracker."""
