-- The account Tailrace reads with, and what it needs. Not logged: it belongs to this server alone.
SET sql_log_bin = 0;
CREATE USER IF NOT EXISTS 'tailrace'@'%' IDENTIFIED BY 'tailrace';
GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'tailrace'@'%';
