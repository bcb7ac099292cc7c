"""The epoch in hand: the rows, counts and GTIDs gathered since the last one was sealed."""
