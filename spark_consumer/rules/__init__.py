"""What the channel wants: which rows and DDL it carries, and under which names."""
