"""Numbers that another server has published of public checkpoints: the first components of answers.

From the snapshots in huggingface/text-embeddings-inference (Apache-2.0). The backend behind them
approximates GELU: hence tolerances of 4e-3 and 5e-3. Knows nothing of who compares with them.
"""

TEXT_A = "What is Deep Learning?"
TEXT_B = "Deep Learning is..."

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
# "test", normalised mean: the first eight and the last two components.
F1 = (
    *(0.011566745, 0.025191609, -0.036694292, 0.05925345),
    *(-0.007202666, -0.041202188, 0.07718597, 0.037412453),
)
F1_END = (0.053201348, -0.05518625)
# The same, cut to 128 components and normalised again.
F2 = (
    *(0.020964134, 0.04565805, -0.066505864, 0.10739273),
    *(-0.013054413, -0.07467599, 0.13989426, 0.06780755),
)
# "test", one row per token.
F3 = (
    (0.05362602, -0.09624873, -0.15422677, 0.16551508),
    (-0.0011101477, 0.22351609, -0.2819248, 0.15021688),
    (0.1663418, 0.34938747, -0.25814858, 0.80541164),
)
# TEXT_A, mean.
F4 = (
    *(-0.59059864, -0.25252345, 0.14972475, 0.05487579),
    *(-0.11783009, -0.16678402, -0.23309596, -0.07095148),
)
F4_NORM = 7.5809
# TEXT_A, TEXT_B, TEXT_A in one batch, mean.
F5_A = (-0.5904484, -0.25218195, 0.14959621, 0.05505526)
F5_B = (-0.11974101, -0.5844457, 0.34629655, -0.24922174)
F5_COSINE = 0.67438
# TEXT_A, first token.
F6 = (
    *(-0.023603667, -0.5268713, 0.17888242, -0.1465806),
    *(-0.0010344515, 0.105331376, -0.12240729, 0.01991907),
)
# TEXT_A, the first component of every token.
F7 = (-0.023603667, -0.49331263, -0.3762988, -1.4571402, -1.1674714, -0.16000813, -0.45635578)

GO_EMOTIONS = "SamLowe/roberta-base-go_emotions"
# "test": probabilities over all labels together; that server uses softmax.
F8 = {
    "neutral": 0.9972132,
    "approval": 0.0007965705,
    "annoyance": 0.00029795355,
    "admiration": 0.00020120452,
}
# "I like you.": logits by class id, the first and the last.
F9 = (-6.548218, -6.3022184, -4.866901, -3.9598548, -4.6330333)
F9_NEUTRAL = 3.0466576
F9_SCORE = 0.9546

BGE_RERANKER = "BAAI/bge-reranker-base"
# Query "test", texts "test", "other", "test".
F10 = (0.9997739, 0.3638598, 0.9997739)

# Logits of one text or one pair.
PAIR = ("What is Deep Learning?", "Deep Learning is not...")
F11 = {
    "ibm-research/re2g-reranker-nq": (
        (
            "PrimeTime is a timing signoff tool",
            "PrimeTime can perform most accurate timing analysis",
        ),
        (2.8580017, -2.9722357),
    ),
    "jinaai/jina-reranker-v1-tiny-en": ((TEXT_A,), (-0.6045344,)),
    "mixedbread-ai/mxbai-rerank-xsmall-v1": ((TEXT_A,), (-2.5560656,)),
    "Alibaba-NLP/gte-multilingual-reranker-base": (PAIR, (-0.74173266,)),
    "Alibaba-NLP/gte-reranker-modernbert-base": (PAIR, (2.13616,)),
}
