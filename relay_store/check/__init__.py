"""Whether it is what the upstream wrote: sizes, checksums, GTIDs, sequence."""
