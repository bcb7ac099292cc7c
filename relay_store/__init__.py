"""The relay log on disk: the upstream's own binlog files, fsynced, in TiDB DM's layout."""
