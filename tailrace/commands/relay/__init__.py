"""``tailrace relay``: the relay log on this machine's disk."""
