"""Decision requests of every sort, from a seed. Knows nothing of models, routes or oracles."""

import random
from typing import Any

_WORDS = (
    *("the", "refund", "order", "late", "payment", "agent", "calm", "angry", "yes", "no", "maybe"),
    *(
        "ship",
        "box",
        "12",
        "3.5",
        "again",
        "Füße",
        "naïve",
        "Ελλάδα",
        "русский",
        "深度学习",
        "日本語",
    ),
    *(
        "العربية",
        "हिन्दी",
        "배송이",
        "🙂🚀",
        "e\u0301",
        "\u200b",
        "[MASK]",
        "[SEP]",
        "[CLS]",
        "don't",
    ),
    *("state:", '{"k":', "1}", "<s>", "\t", "\n", "A/B", "x=y"),
)
_NUMBERS: tuple[object, ...] = (0, 7, -0.0, 1e6, 1e16, 3.25, 123456789012345678901234567890, True)
Body = dict[str, Any]


def generate_body(seed: int) -> Body:
    """A valid body: one to four questions about a state that may be far too long."""
    rng = random.Random(seed)
    body: Body = {"model": "jev-latest", "state": _state(rng)}
    body["questions"] = {
        f"{rng.choice(['q', 'frage ', '질문', 'a.b-'])}{i}": _question(rng)
        for i in range(rng.choice([1, 1, 2, 3, 4]))
    }
    if rng.random() < 0.25:
        body["max_len"] = rng.choice([64, 100, 256, 511, 10_000])
    if rng.random() < 0.2:
        body["head_max_len"] = rng.choice([16, 24, 40, 63])
    return body


def _text(rng: random.Random, most: int) -> str:
    return " ".join(rng.choice(_WORDS) for _ in range(rng.randint(0, most)))


def _state(rng: random.Random) -> object:
    length = rng.choice([0, 5, 40, 40, 400, 3000])
    kind = rng.random()
    if kind < 0.4:
        return _text(rng, length)
    if kind < 0.7:
        return [{"role": "user", "text": _text(rng, 30)} for _ in range(max(1, length // 20))]
    return {
        "note": _text(rng, length),
        "größe": rng.choice(_NUMBERS),
        "nested": {"list": [_text(rng, 3), None, rng.choice(_NUMBERS)], "empty": {}},
    }


def _description(rng: random.Random) -> object:
    return rng.choice(
        [
            None,
            "",
            0,
            False,
            _text(rng, 6),
            _text(rng, 80),
            {"means": _text(rng, 3), "n": rng.choice(_NUMBERS)},
            [_text(rng, 2), 1.5],
        ]
    )


def _question(rng: random.Random) -> Body:
    kind = rng.choice(["choice", "score", "noul"])
    instructions = rng.choice(
        ["Which one?", _text(rng, 8) + "?", _text(rng, 300) + "?", {"ask": _text(rng, 5)}, ["x", 2]]
    )
    return {"type": kind, "instructions": instructions, **_CRITERIA[kind](rng)}


def _choice(rng: random.Random) -> Body:
    count = rng.choice([1, 2, 3, 5, 6, 10, 11, 26, 27, 64, 100])
    names = [f"{rng.choice(_WORDS).strip() or 'x'} {i}" for i in range(count)]
    rng.shuffle(names)
    if rng.random() < 0.15:
        return {"criteria": names}
    return {"criteria": {name: _description(rng) for name in names}}


def _score(rng: random.Random) -> Body:
    count = rng.choice([1, 2, 3, 5, 10, 32])
    levels = [_description(rng) for _ in range(count)]
    return {"criteria": ["level" if level is None else level for level in levels]}


def _noul(rng: random.Random) -> Body:
    sides = {"true": _description(rng), "false": _description(rng)}
    question: Body = rng.choice(
        [
            {},
            {"criteria": None},
            {"criteria": sides},
            {"criteria": {"true": sides["true"]}},
            {"criteria": {"False": sides["false"]}},
        ]
    )
    if rng.random() < 0.2:
        return {**question, "labels": {"false": "nein", "true": " ja "}}
    return question


_CRITERIA = {"choice": _choice, "score": _score, "noul": _noul}
