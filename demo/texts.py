"""Random values in many scripts, so that a lost byte is noticed."""

from __future__ import annotations

import json
from random import Random

_NAMES = [
    "Ada",
    "Zoë",
    "Søren",
    "Łukasz",
    "Ирина",
    "山田",
    "محمد",
    "Ελένη",
    "D'Arcy",
    "Noël",
    "ไพลิน",
    "🦊 Fox",
]
_WORDS = [
    "river", "Größe", "naïve", "水車", "поток", "weir", "🌊", "👩‍🔬", "back\\slash", "quote'd", 'dou"ble', "%s",
    "sluice", "tail\trace", "été", "🇳🇴", "𝒳", "null", "line\nfeed", "ß",
]  # fmt: skip


def person(rng: Random) -> str:
    return rng.choice(_NAMES)


def sentence(rng: Random, words: int) -> str:
    return " ".join(rng.choices(_WORDS, k=words))


def json_document(rng: Random) -> str | None:
    """Return a JSON document, or sometimes NULL."""
    if rng.random() < 0.1:
        return None
    document = {
        "word": sentence(rng, 2),
        "number": rng.choice([0, -1, 2**40, 1.5, 1e-7]),
        "nested": [True, None, {"emoji": "🧭"}],
    }
    return json.dumps(document, ensure_ascii=rng.random() < 0.5)


def maybe(rng: Random, value: object) -> object:
    """Return the value, or NULL with a probability of one fifth."""
    return None if rng.random() < 0.2 else value
