"""What the documents say about commands, targets, links, codes and bytes is so."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest
import typer.main

from docs import commands
from producer.decode.row_decoder import RowDecoder
from schemas.structure import Column, TableStructure
from schemas.varint import encode_bytes, encode_long
from schemas.wire.avro_schema import row_schema
from schemas.wire.epoch import EPOCH_RECORD, STRUCTURE_RECORD
from tailrace.commands.app import app
from tailrace.config.file import SECTIONS
from tests.golden.renew import renewed
from tests.support.paths import CHECKOUT as ROOT

NAMED = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"]
PAGES = [ROOT / name for name in NAMED] + sorted((ROOT / "docs").rglob("*.md"))
README = (ROOT / "README.md").read_text()
FORMAT = (ROOT / "docs/FORMAT.md").read_text()
PACKAGES = ("schemas", "relay_store", "producer", "spark_consumer", "tailrace", "compose", "demo", "bench")
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
WAYS = re.findall(r"^## The way of .+?(?=^## )", ARCHITECTURE, re.MULTILINE | re.DOTALL)
DECISIONS = re.findall(
    r"^In the code: (.+)$",
    "\n".join(page.read_text() for page in (ROOT / "docs/decisions").glob("*.md")),
    re.MULTILINE,
)
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def _steps(way: str) -> list[str]:
    """Where each step of a way through the code happens: the last column of its table."""
    return re.findall(r"^\| \d+ \|.*\| (.+) \|$", way, re.MULTILINE)


def test_the_documents_exist() -> None:
    names = {str(page.relative_to(ROOT)) for page in PAGES if page.exists()}
    assert {*NAMED, "docs/FORMAT.md", "docs/TYPES.md", "docs/ERRORS.md"} <= names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
            assert anchor in {heading.lower().replace(" ", "-") for heading in headings}, link


def test_the_readme_names_targets_that_make_has() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = re.findall(r"(?:`|^)make ([a-z -]+)", README, re.MULTILINE)
    assert {"demo", "test"} <= {word for words in named for word in words.split()}
    for words in named:
        assert words.split()[0] in targets, words


def test_the_readme_is_short() -> None:
    assert len(README.split()) < 1000


def test_the_readme_leads_to_each_document() -> None:
    linked = set(re.findall(r"\]\(([^)#\s]+)", README))
    assert {str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md")} <= linked


def test_the_page_of_commands_is_what_the_commands_say() -> None:
    assert commands.PAGE.read_text() == commands.page(), "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_the_documents_are_there(page: Path) -> None:
    for command, word in re.findall(r"`tailrace ([a-z]+)(?: ([a-z]+))?", page.read_text()):
        assert command in COMMANDS, command
        if word and hasattr(COMMANDS[command], "commands"):
            assert word in COMMANDS[command].commands, f"{command} {word}"


@pytest.mark.parametrize("name", ["README.md", "docs/SETUP.md", "docs/REPLAY.md"])
def test_options_in_the_documents_are_there(name: str) -> None:
    groups = [c for one in COMMANDS.values() for c in (one, *getattr(one, "commands", {}).values())]
    options = {option for command in groups for p in command.params for option in p.opts}
    assert set(re.findall(r"`(--[a-z-]+)", (ROOT / name).read_text())) <= options


def test_the_readmes_configuration_is_one() -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    for section, fields in tomllib.loads(text).items():
        SECTIONS[section].model_validate(fields)


def test_every_error_code_is_explained_once_and_none_that_is_gone() -> None:
    sources = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    used = {code for file in sources for code in re.findall(r"\bTR\d{3}\b", _strings(file))}
    explained = re.findall(r"^\| (TR\d{3}) \|", (ROOT / "docs/ERRORS.md").read_text(), re.MULTILINE)
    assert explained == sorted(set(explained)), "docs/ERRORS.md has each code once, in order"
    assert set(explained) == used, "docs/ERRORS.md has a line for each code"


def _strings(file: Path) -> str:
    """What a program can say: its strings, docstrings left out."""
    tree = ast.parse(file.read_text())
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return "\n".join(
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_codes_in_the_documents_are_explained(page: Path) -> None:
    explained = set(re.findall(r"^\| (TR\d{3}) \|", (ROOT / "docs/ERRORS.md").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bTR\d{3}\b", page.read_text())) <= explained


def test_decisions_have_the_numbers_of_their_files() -> None:
    for page in (ROOT / "docs/decisions").glob("*.md"):
        assert page.read_text().startswith(f"# {int(page.name[:4])}. "), page.name


def test_crash_points_are_those_of_the_code() -> None:
    sources = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    points = {name for file in sources for name in re.findall(r'\breached\("([a-z_.]+)"\)', file.read_text())}
    table = ARCHITECTURE.partition("## kill -9")[2]
    named = set(
        re.findall(
            r"`((?:relay|purge|publish|ddl|apply|nontransactional|copied|worker|batch|copy)\.(?:before|after)\w*)`",
            table,
        )
    )
    assert named == points


def test_the_picture_of_the_stages_has_every_folder() -> None:
    picture = ARCHITECTURE.partition("## The stages")[2].partition("```")[2].partition("```")[0]
    shown: dict[str, set[str]] = {}
    package = ""
    for start, folder in re.findall(r"^(\w+/)? +(\w+)/ ", picture, re.MULTILINE):
        package = start or package
        shown.setdefault(package, set()).add(folder)
    for name in ("relay_store/", "producer/", "spark_consumer/"):
        assert shown[name] == {file.parent.name for file in (ROOT / name).glob("*/__init__.py")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_in_the_documents_are_there(page: Path) -> None:
    folders = "|".join((*PACKAGES, "tests", "docs"))
    for path in re.findall(rf"`((?:{folders})/[\w./-]*)`", page.read_text()):
        assert (ROOT / path).exists(), path


def test_the_ways_through_the_code_take_few_steps() -> None:
    assert all(len(_steps(way)) <= 12 for way in WAYS)


@pytest.mark.parametrize("line", [step for way in WAYS for step in _steps(way)] + DECISIONS)
def test_names_in_the_documents_are_there(line: str) -> None:
    text = ""
    for name in re.findall(r"`([^`]+)`", line):
        if name.endswith((".py", "/")):
            text = (ROOT / name).read_text() if name.endswith(".py") else ""
            continue
        for part in name.split("."):
            assert re.search(rf"\b(def|class) {part}\b|self\.{part} = ", text), f"{name} in {line}"


def _example(name: str) -> bytes:
    """The bytes of the example: lines of hexadecimal digits, each with a line of their meaning below."""
    block = FORMAT.partition("### Example")[2].partition("```")[2].partition("```")[0]
    part = block.split(f"{name} ", 1)[1].split("\n\n", 1)[0]
    return bytes.fromhex("".join(part.splitlines()[::2]).replace(" ", ""))


def test_the_example_record_is_what_the_decoder_makes() -> None:
    columns = (
        Column("id", "int", 3, 0, False),
        Column("name", "varchar(20)", 15, 80, True, charset="utf8mb4"),
    )
    structure = TableStructure("shop", "t", columns, ("id",))
    gtid = b"\x02" + encode_bytes(b"0-1-9")
    table = encode_long(0) + encode_bytes(b"shop") + encode_bytes(b"t")
    place = encode_long(1) + gtid + encode_bytes(b"binlog.000001") + encode_long(1234)
    place += encode_long(1_700_000_000_000) + encode_long(1_700_000_000_100)
    image = b"\x00" + (7).to_bytes(4, "little") + b"\x03Ada"
    keys: list[bytes] = []
    values: list[bytes] = []
    write = RowDecoder(structure).write
    write(image, 0, len(image), 12, encode_long(1), table, b"", place, keys.append, values.append, {})
    assert (keys, values) == ([_example("key")], [_example("value")])
    assert row_schema(structure).fingerprint == _example("value")[2:10]


@pytest.mark.parametrize(
    ("name", "header"),
    [("EpochCommitted", EPOCH_RECORD.header), ("StructureVersion", STRUCTURE_RECORD.header)],
)
def test_the_log_has_the_schemas_that_its_page_names(name: str, header: bytes) -> None:
    row = re.search(rf"^\| `{name}` \| .* \| `([0-9a-f]{{16}})` \|$", FORMAT, re.MULTILINE)
    assert row is not None
    assert b"\xc3\x01" + bytes.fromhex(row[1]) == header


def test_renewing_leaves_golden_files_that_hold_as_they_are() -> None:
    for path, text in renewed():
        assert text == path.read_text(), path
