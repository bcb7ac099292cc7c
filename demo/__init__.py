"""``make demo``: a busy database is replicated while both processes are killed, and then compared."""
