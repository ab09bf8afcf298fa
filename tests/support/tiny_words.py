"""The words that the tiny vocabularies are spelled out from.

Vocabularies are written down, not trained: the trainers of the `tokenizers` library break ties by
hash order, and the same seed would give other ids on every run.
"""

WORDS = (
    "the a an is are was what which how deep learning machine model models test text texts query "
    "passage "
    "document search sentence sentences embedding embeddings vector cat cats dog dogs sat on mat "
    "runs running "
    "river bank money house houses green blue red small large quick brown fox jumps over lazy "
    "similar "
    "weather today tomorrow rain sun one two three four five six seven eight nine ten hello world "
    "der die das ist und Katze Hund Haus Häuser schön grün Straße Wetter heute morgen "
    "le la les est et chat chien maison maisons déjà élève été où garçon forêt temps demain "
    "el perro gato casa niño mañana corazón кот собака дом погода сегодня завтра привет мир "
    "深度 学习 模型 测试 天气 今天 猫 狗 こんにちは 世界 مرحبا عالم नमस्ते दुनिया"
)
DIALOGUE_WORDS = (
    "yes no Yes No system user assistant Instruct Query Document Judge whether meets requirements "
    "based and provided Note that answer can only be or Given web retrieve relevant passages"
)
"""What decoders know beside `WORDS`: the words of rerankers' templates."""

PUNCTUATION = ". , ? ! ' \" ( ) - : ; 0 1 2 3 4 5 6 7 8 9"


def words(text: str = WORDS) -> list[str]:
    """Every word once, in order."""
    return list(dict.fromkeys(text.split()))


def characters(text: str = WORDS) -> list[str]:
    """Letters of the words, then punctuation; may repeat."""
    return sorted(set(text) - {" "}) + PUNCTUATION.split()
