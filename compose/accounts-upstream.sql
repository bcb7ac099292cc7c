-- The account that Tailrace reads with, and its privileges. It is not in the binlog, as it is only for this server.
SET sql_log_bin = 0;
CREATE USER IF NOT EXISTS 'tailrace'@'%' IDENTIFIED BY 'tailrace';
GRANT SELECT, SHOW VIEW, EVENT, LOCK TABLES, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'tailrace'@'%';
