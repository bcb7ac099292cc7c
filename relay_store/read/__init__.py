"""Reading relay files: blocks of complete events, up to the last complete group that the writer shows."""
