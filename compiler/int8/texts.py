"""Texts of a dozen subjects, put together out of parts: 8-bit engines are calibrated on them."""

from itertools import product

_SUBJECTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "cooking": (
        ("The cook simmers", "Grandmother salts", "A student burns"),
        ("onions in butter until they turn golden", "the soup with thyme and carrots"),
    ),
    "astronomy": (
        ("The telescope follows", "An astronomer measures", "The probe photographs"),
        ("a comet beyond the orbit of Jupiter", "the light of a distant galaxy"),
    ),
    "medicine": (
        ("The doctor prescribes", "A nurse notes", "The clinic studies"),
        ("a smaller dose against high blood pressure", "fever and cough after the operation"),
    ),
    "finance": (
        ("The bank raises", "An investor questions", "The report explains"),
        ("interest rates for the third time this year", "the loss on government bonds"),
    ),
    "football": (
        ("The striker misses", "A goalkeeper saves", "The referee awards"),
        ("a penalty in the last minute", "a free kick from twenty metres"),
    ),
    "software": (
        ("The developer reverts", "A test uncovers", "The reviewer rejects"),
        ("a change that leaks memory", "a race between two threads"),
    ),
    "gardening": (
        ("The gardener prunes", "A neighbour waters", "Late frost kills"),
        ("the roses beside the fence", "young tomato plants in April"),
    ),
    "law": (
        ("The court overturns", "A lawyer appeals", "The contract excludes"),
        ("the verdict for lack of evidence", "a claim for damages after five years"),
    ),
    "travel": (
        ("The train leaves", "A tourist misses", "The airline cancels"),
        ("the night connection to Lisbon", "the early flight over the mountains"),
    ),
    "weather": (
        ("The forecast promises", "A storm brings", "Meteorologists expect"),
        ("heavy rain along the coast", "ten degrees less by Sunday night"),
    ),
    "music": (
        ("The orchestra rehearses", "A pianist forgets", "The critic praises"),
        ("the slow movement of the sonata", "an encore after the concert"),
    ),
    "physics": (
        ("The experiment confirms", "A theory predicts", "The detector records"),
        ("the mass of a short-lived particle", "an electron in a magnetic field"),
    ),
}
_OTHERS = (
    "Der Zug nach Hamburg hat heute wegen eines Signalschadens vierzig Minuten Verspätung.",
    "La bibliothèque municipale reste ouverte jusqu'à vingt heures pendant les examens.",
    "El ayuntamiento aprobó ayer un nuevo plan para reducir el ruido en el centro.",
    "Завтра утром в горах ожидается сильный снег и порывистый ветер.",
    "研究人员发现，这种材料在低温下几乎没有电阻。",
    "新しい図書館は来年の春に駅の近くで開館する予定です。",
    "تبدأ المحاضرة في الساعة التاسعة صباحا في القاعة الكبرى.",
    "नदी का जलस्तर लगातार तीन दिनों की बारिश के बाद बढ़ गया है।",
    "def mean(values): return sum(values) / len(values)  # fails for an empty list",
    "Order 4711-B: 12 x M8 screws, 3.50 EUR each, due 2024-02-29, ref. #A/93.",
)


def subject_texts() -> list[str]:
    """Six sentences on each subject, subject after subject."""
    return [
        f"{begin} {end}."
        for beginnings, ends in _SUBJECTS.values()
        for begin, end in product(beginnings, ends)
    ]


def calibration_texts() -> list[str]:
    """Single sentences, other languages, and passages of many sentences."""
    sentences = subject_texts()
    passages = [" ".join(sentences[i::6]) for i in range(6)]
    return [*sentences[::3], *_OTHERS, *passages]
