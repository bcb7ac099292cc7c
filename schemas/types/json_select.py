"""Reads a JSON document from a SELECT: its text, and the types of the scalars whose type the text does not show.

JSON_TABLE lists the values of a document by two paths: ``$**.*``, the members of all objects, and ``$**[*]``, the
elements of all arrays. The server goes from the outside in: first the values of one container, in their order, then
each container among them with all that is in it. So a value's number in its list says where it is in the text.
Source: MySQL sql-common/json_dom.cc, ``Json_wrapper::seek``; seen on MySQL 9.7.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, TypeAlias

from schemas.types.json_avro import tree_avro
from schemas.types.json_binary import Tree, TypedText, decimal_type, opaque_type, quoted

# In the text a number without point and exponent is an INTEGER up to 2^32-1, and an UNSIGNED INTEGER above.
# JSON_TABLE makes NULL of a document's null.
_IS_TYPED = (
    "CASE JSON_TYPE({v}) WHEN 'STRING' THEN 0 WHEN 'INTEGER' THEN {v}>4294967295 WHEN 'DOUBLE' THEN 0"
    " WHEN 'OBJECT' THEN 0 WHEN 'ARRAY' THEN 0 WHEN 'BOOLEAN' THEN 0 WHEN 'NULL' THEN 0"
    " WHEN 'UNSIGNED INTEGER' THEN {v}<=4294967295 ELSE JSON_TYPE({v}) IS NOT NULL END"
)
# Where the list is longer than `max_allowed_packet`, GROUP_CONCAT is cut off, or CONCAT is NULL.
_TYPES = (
    "CASE WHEN JSON_TYPE({document}) IN ('OBJECT','ARRAY') THEN"
    " (SELECT IF(COUNT(*),COALESCE(CONCAT(COUNT(*),':',GROUP_CONCAT("
    "IF(tr_m IS NULL,'e','m'),COALESCE(tr_m,tr_e),' ',JSON_TYPE(COALESCE(tr_mv,tr_ev)))),COUNT(*)),NULL)"
    " FROM JSON_TABLE({document},'$' COLUMNS ("
    "NESTED PATH '$**.*' COLUMNS (tr_m FOR ORDINALITY,tr_mv JSON PATH '$'),"
    "NESTED PATH '$**[*]' COLUMNS (tr_e FOR ORDINALITY,tr_ev JSON PATH '$'))) AS tr_values WHERE {each})"
    " WHEN {whole} THEN CONCAT('1:',JSON_TYPE({document})) ELSE NULL END"
)
_NUMBERS = {"UNSIGNED INTEGER": "unsigned", "INTEGER": "signed"}
_TIMES = {"DATE": "date", "TIME": "time(6)", "DATETIME": "datetime(6)", "TIMESTAMP": "timestamp(6)"}
_BYTES = {"BLOB", "BIT", "OPAQUE", "GEOMETRY"}
_DECIMAL = re.compile(r"-?[0-9]+(?:\.([0-9]+))?")
_BASE64 = re.compile(r"base64:type([0-9]{1,3}):")
_ENTRY = re.compile(rb"([me])([0-9]{1,10}) ([A-Z ]{1,20})")

#: the type of a value by its list and its number there
_Found: TypeAlias = "dict[tuple[bytes, int], str]"


class _Number(str):
    """A number's original text."""

    __slots__ = ()


def types_expression(document: str) -> str:
    """Return the expression of a document's typed scalars; NULL if it has none.

    ``2:m3 DECIMAL,e1 DATE`` is the number of them, and for each whether it is a member or an element, its number in
    that list, and its JSON_TYPE. If the document is a scalar itself, it is ``1:DATE``.

    Args:
        document: the quoted column.
    """
    each, whole = (_IS_TYPED.format(v=value) for value in ("COALESCE(tr_mv,tr_ev)", document))
    return _TYPES.format(document=document, each=each, whole=whole)


def selected_avro(text: bytes, types: bytes, text_tag: bytes, typed_tag: bytes) -> bytes:
    """Convert a document with typed scalars to Avro, as ``json_avro`` does with the binary document.

    Args:
        types: the value of ``types_expression``.
        text_tag, typed_tag: the union's branches.

    Raises:
        DecodeError: TR417, bytes of a type that SQL cannot create again.
        ValueError: ``types`` are not those of this text, or were too long for the server.
    """
    number, colon, entries = types.partition(b":")
    if not colon:
        raise ValueError(f"the server cannot list the types of a JSON document's {number.decode()} scalars")
    document = _loaded(text.decode())
    if isinstance(document, (dict, list)):
        _set_types(document, _found(int(number), entries.split(b",")))
    else:
        document = _typed(document, entries.decode())
    return tree_avro(_tree(document), text_tag, typed_tag)


def _loaded(text: str) -> Any:
    try:
        return json.loads(
            text,
            object_pairs_hook=_members,
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_no_constant,
            strict=False,
        )
    except RecursionError as error:
        raise ValueError("a JSON document is too deep for a server's") from error


def _members(pairs: Iterable[tuple[str, Any]]) -> dict[bytes, Any]:
    return {key.encode(): value for key, value in pairs}


def _no_constant(name: str) -> None:
    raise ValueError(f"a JSON document contains {name}")


def _found(number: int, entries: list[bytes]) -> _Found:
    found: _Found = {}
    for entry in entries:
        parts = _ENTRY.fullmatch(entry)
        if parts is None:
            break
        found[parts[1], int(parts[2])] = parts[3].decode()
    if len(found) != number:
        raise ValueError(f"the types of {number - len(found)} scalars of a JSON document are missing")
    return found


def _set_types(document: Any, found: _Found) -> None:
    """Replace the scalars that have a type in ``found``, going through the containers in the server's order."""
    members = elements = set_ = 0
    # The top of the stack is the next container.
    containers = [document]
    while containers:
        container, inside = containers.pop(), []
        items: Iterable[tuple[Any, Any]]
        if isinstance(container, dict):
            items, name, first = container.items(), b"m", members + 1
            members += len(container)
        else:
            items, name, first = enumerate(container), b"e", elements + 1
            elements += len(container)
        for number, (key, value) in enumerate(items, first):
            if isinstance(value, (dict, list)):
                inside.append(value)
            elif (json_type := found.get((name, number))) is not None:
                container[key] = _typed(value, json_type)
                set_ += 1
        containers += reversed(inside)
    if set_ != len(found):
        raise ValueError("a JSON document has other values than its list of types")


def _tree(value: Any) -> Tree:
    """Convert what ``json.loads`` made to a tree with the text of each scalar."""
    if isinstance(value, dict):
        return {key: _tree(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_tree(element) for element in value]
    if isinstance(value, (TypedText, _Number)):
        return value
    return quoted(value.encode()) if isinstance(value, str) else json.dumps(value)


def _typed(value: Any, json_type: str) -> TypedText:
    """Return a typed scalar by its value in the text and its JSON_TYPE. Raises ValueError if they do not match."""
    if isinstance(value, _Number):
        decimal = _DECIMAL.fullmatch(value)
        if decimal and json_type == "DECIMAL":
            return TypedText(value, decimal_type(int(value.replace(".", "")), len(decimal[1] or "")))
        if decimal and not decimal[1] and json_type in _NUMBERS:
            return TypedText(value, _NUMBERS[json_type])
    elif isinstance(value, str):
        if json_type in _TIMES:
            return TypedText(quoted(value.encode()), _TIMES[json_type])
        if json_type in _BYTES and (prefix := _BASE64.match(value)):
            # The server divides base64 into lines.
            text = quoted(value.replace("\n", "").encode())
            return TypedText(text, opaque_type(int(prefix[1])))
    raise ValueError(f"a value in a JSON document is no {json_type}")
