"""MariaDB and MySQL on 127.0.0.1, configured as a careful operator would configure a replication source or target."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import pymysql
from pymysql.connections import Connection

from compose import artifacts
from compose.servers import Server
from schemas.errors import StackError
from tailrace.artifacts import cache

Role = Literal["upstream", "downstream"]
Flavor = Literal["mysql", "mariadb"]

_SHARED_OPTIONS = [
    "--bind-address=127.0.0.1",
    "--socket=server.sock",  # relative to the data folder, since an absolute path may be too long for the kernel
    "--pid-file=server.pid",
    "--skip-name-resolve",
    "--character-set-server=utf8mb4",
    "--max-connections=200",
    "--max-allowed-packet=64M",
    "--local-infile=ON",
    "--innodb-buffer-pool-size=256M",
    "--innodb-flush-log-at-trx-commit=1",
    "--sync-binlog=1",
    "--log-bin=mysql-bin",
    "--binlog-format=ROW",
    "--binlog-row-image=FULL",
    "--binlog-row-metadata=FULL",
    "--log-bin-trust-function-creators=ON",
]

_DDL_AND_DML = (
    "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES, TRIGGER, CREATE TEMPORARY TABLES,"
    " CREATE VIEW, SHOW VIEW, CREATE ROUTINE, ALTER ROUTINE, EXECUTE, EVENT"
)


class Database(Server):
    """A MySQL-compatible server with the accounts ``root`` (no password) and ``tailrace`` (password ``tailrace``).

    ``tailrace`` has only the privileges that Tailrace needs for the server's role.
    """

    flavor: Flavor
    _grants: ClassVar[dict[Role, str]]

    def __init__(
        self,
        directory: str | Path,
        *,
        role: Role = "upstream",
        server_id: int = 1,
        args: Sequence[str] = (),
    ) -> None:
        super().__init__(directory, args=args)
        self.role: Role = role
        self.server_id = server_id
        self.name = f"{self.flavor} {role}"

    def url(self, user: str = "root") -> str:
        """``mysql://user@127.0.0.1:port/``, with the password for ``tailrace``."""
        account = "tailrace:tailrace" if user == "tailrace" else user
        return f"mysql://{account}@127.0.0.1:{self.port}/"

    def connect(self, **options: Any) -> Connection[Any]:
        """Open a pymysql connection as root, autocommit; ``options`` are pymysql's and override the defaults."""
        # On this machine; and pymysql would read the system's authorities for each connection, which takes 40 ms.
        defaults: dict[str, Any] = {"user": "root", "charset": "utf8mb4", "autocommit": True}
        address = {"host": "127.0.0.1", "port": self.port, "ssl_disabled": "ssl" not in options}
        return pymysql.connect(**{**defaults, **address, **options})

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements as root on one connection; returns the rows of the last one."""
        rows: list[tuple[Any, ...]] = []
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                rows = list(cursor.fetchall())
        return rows

    def client_program(self, name: str) -> list[str]:
        """Return the command for a client program of this flavor; ``mysqlbinlog`` reads binlogs of both."""
        root = artifacts.mysql_root()
        program = "mariadb-binlog" if (name, self.flavor) == ("mysqlbinlog", "mariadb") else name
        return artifacts.mysql_program(root, f"bin/{program}")

    def healthy(self) -> bool:
        try:
            with self.connect(connect_timeout=2, read_timeout=2) as connection:
                connection.ping(reconnect=False)
        except (pymysql.MySQLError, OSError):
            return False
        return True

    @property
    def _scratch(self) -> Path:
        """The folder of its temporary tables; another server in the same folder would delete them at its start."""
        return self.directory / "tmp"

    def _before_start(self) -> None:
        self._scratch.mkdir(exist_ok=True)
        # MySQL does not start if a killed server's lock file has a pid that is in use again.
        for left_over in self.data.glob("server.sock*"):
            left_over.unlink()

    def _first_start(self) -> None:
        self.execute(
            "SET sql_log_bin = 0",
            "CREATE USER IF NOT EXISTS 'tailrace'@'%' IDENTIFIED BY 'tailrace'",
            f"GRANT {self._grants[self.role]} ON *.* TO 'tailrace'@'%'",
        )

    def _command(self) -> list[str]:
        own = [f"--datadir={self.data}", f"--tmpdir={self._scratch}"]
        own += [f"--port={self.port}", f"--server-id={self.server_id}"]
        return [*self._program(), *own, *_SHARED_OPTIONS, *self._options(), *self.args]

    def _program(self) -> list[str]:
        raise NotImplementedError

    def _options(self) -> list[str]:
        raise NotImplementedError


class MariaDB(Database):
    """MariaDB 11.4, binlog and strict GTIDs on."""

    flavor = "mariadb"
    _grants: ClassVar[dict[Role, str]] = {
        "upstream": "SELECT, SHOW VIEW, EVENT, LOCK TABLES, REPLICATION SLAVE, BINLOG MONITOR",
        "downstream": f"{_DDL_AND_DML}, SET USER, BINLOG ADMIN, BINLOG REPLAY, BINLOG MONITOR, PROCESS",
    }

    def _program(self) -> list[str]:
        root = artifacts.mariadb_root()
        return [
            str(root / "bin" / "mariadbd"),
            "--no-defaults",
            *_run_as_root(),
            f"--basedir={root}",
            f"--lc-messages-dir={root}/share",
            f"--character-sets-dir={root}/share/charsets",
        ]

    def _options(self) -> list[str]:
        # Otherwise it creates a TLS key at every start, which takes 2 to 15 seconds.
        return ["--gtid-domain-id=0", "--gtid-strict-mode=ON", "--log-slave-updates=ON", "--skip-ssl"]

    def _template(self) -> Path:
        root = artifacts.mariadb_root()

        def build(data: Path) -> None:
            cache.print_progress("preparing an empty MariaDB")
            install = [str(root / "scripts" / "mariadb-install-db"), "--no-defaults", *_run_as_root()]
            install += [f"--basedir={root}", f"--datadir={data}", "--auth-root-authentication-method=normal"]
            _initialize([*install, "--skip-test-db", "--skip-name-resolve"], data)
            statements = [
                "DELETE FROM mysql.global_priv WHERE User = '' OR Host <> 'localhost'",
                "FLUSH PRIVILEGES",
            ]
            self._accounts(data, statements)

        return cache.bundle(f"{root.name}-data", build)

    def _accounts(self, data: Path, statements: Sequence[str]) -> None:
        statements = [*statements, *_root_over_tcp()]
        command = [*self._program(), f"--datadir={data}", "--bootstrap"]
        bootstrap = "USE mysql;\n" + "".join(f"{statement};\n" for statement in statements)
        _initialize(command, data, bootstrap)


class MySQL(Database):
    """MySQL 9.7, binlog and GTIDs on."""

    flavor = "mysql"
    _grants: ClassVar[dict[Role, str]] = {
        "upstream": "SELECT, SHOW VIEW, EVENT, LOCK TABLES, REPLICATION SLAVE, REPLICATION CLIENT",
        "downstream": f"{_DDL_AND_DML}, SET_ANY_DEFINER, ALLOW_NONEXISTENT_DEFINER, SYSTEM_USER,"
        " REPLICATION CLIENT, REPLICATION_APPLIER, SESSION_VARIABLES_ADMIN",
    }

    def _program(self) -> list[str]:
        root = artifacts.mysql_root()
        return [
            *artifacts.mysql_program(root, "sbin/mysqld"),
            "--no-defaults",
            *_run_as_root(),
            f"--basedir={root}/usr",
            f"--lc-messages-dir={root}/usr/share/mysql",
            f"--character-sets-dir={root}/usr/share/mysql/charsets",
            f"--plugin-dir={root}/usr/lib/mysql/plugin",
            "--secure-file-priv=",
            "--mysqlx=OFF",
        ]

    def _options(self) -> list[str]:
        return ["--gtid-mode=ON", "--enforce-gtid-consistency=ON"]

    def _template(self) -> Path:
        root = artifacts.mysql_root()
        # The data can only be used with the value that it was created with.
        lasting = [arg for arg in self.args if arg.startswith("--lower-case-table-names=")]

        def build(data: Path) -> None:
            cache.print_progress("preparing an empty MySQL")
            accounts = data.with_name(f"{data.name}.sql")
            accounts.write_text("".join(f"{statement};\n" for statement in _root_over_tcp()))
            try:
                _initialize(
                    [
                        *self._program(),
                        f"--datadir={data}",
                        "--initialize-insecure",
                        *lasting,
                        f"--init-file={accounts}",
                    ],
                    data,
                )
            finally:
                accounts.unlink()
            (data / "auto.cnf").unlink()  # or all copies would share one server_uuid

        return cache.bundle(f"{root.name}-data{''.join(lasting)}", build)


FLAVORS: dict[str, type[Database]] = {"mysql": MySQL, "mariadb": MariaDB}


def _root_over_tcp() -> list[str]:
    # Names are not resolved, so root@localhost is the socket's root only.
    return ["CREATE USER root@'127.0.0.1'", "GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION"]


def _run_as_root() -> list[str]:
    return ["--user=root"] if os.geteuid() == 0 else []


def _initialize(command: Sequence[str], data: Path, stdin: str = "") -> None:
    done = subprocess.run(
        command,
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=data,
        check=False,
    )
    if done.returncode:
        last = "\n".join(done.stdout.splitlines()[-8:])
        raise StackError(
            "TR700 template-failed",
            f"an empty database could not be created:\n{last}",
            hint="see the lines above",
        )
