"""``tailrace artifacts``: fetches and compiles beforehand what is needed besides the installed packages."""

from __future__ import annotations

import typer

from tailrace.commands.options import AsJson, print_json

app = typer.Typer(
    help="Fetch Spark's connector for Kafka beforehand, for machines without a way out, and check it.",
    no_args_is_help=True,
)


@app.command("fetch")
def fetch() -> None:
    """Fetch the jars into the cache, make the class archive with which Spark starts faster, and compile code.

    A consumer and a producer do the same when they need it first. The cache is $TAILRACE_CACHE, by default
    ~/.cache/tailrace, in a checkout .cache.
    """
    from tailrace.artifacts.cache import cache_dir
    from tailrace.artifacts.compiled import compiled_code
    from tailrace.artifacts.spark import class_archive, spark_jars

    spark_jars()
    class_archive()
    compiled_code()
    typer.echo(cache_dir())


@app.command("verify")
def verify(as_json: AsJson = False) -> None:
    """Compare the jars in the cache with the pinned checksums. Exit code 5: one is missing or changed."""
    from schemas.errors import ExitCode
    from tailrace.artifacts.spark import verify

    found = verify()
    if as_json:
        print_json([{"file": str(path), "state": wrong or "equal"} for path, wrong in found.items()])
    else:
        for path, wrong in found.items():
            typer.echo(f"{wrong or 'equal':8} {path}")
    raise typer.Exit(ExitCode.DAMAGED if any(found.values()) else ExitCode.OK)
