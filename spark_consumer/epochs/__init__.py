"""The epoch log: epochs, positions, slices, and the schema tracker."""
