"""Loaded models around the fake engine, with a word tokenizer whose ids are plain to see."""

from collections.abc import Mapping

import tokenizers
from tokenizers import models, pre_tokenizers, processors

from fake_engine import WIDTH, FakeEngine
from infinity_v3.artifacts.manifest import Backend, Device, Kind, PoolingMode, Precision
from infinity_v3.runtime.loading import LoadedModel
from infinity_v3.runtime.model_info import ModelInfo
from infinity_v3.runtime.prompts import PromptTable
from infinity_v3.runtime.tokenizer import TextTokenizer

START, END = 1, 2
FIRST_WORD = 3
VOCAB_SIZE = 1000
MAX_INPUT_TOKENS = 64


def word_tokenizer() -> tokenizers.Tokenizer:
    """Words "w3" .. "w999" have ids 3 .. 999; any other word is 0; [1] text [2]."""
    vocab = {"<unk>": 0, "<s>": START, "</s>": END}
    vocab |= {f"w{index}": index for index in range(FIRST_WORD, VOCAB_SIZE)}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", START), ("</s>", END)]
    )
    return tokenizer


def fake_model(
    engine: FakeEngine,
    *,
    kind: Kind = Kind.EMBEDDING,
    capabilities: frozenset[str] = frozenset({"embed", "embed_all", "tokenize"}),
    fill_tokens: int = 256,
    prompts: Mapping[str, str] | None = None,
    default_prompt: str = "",
) -> LoadedModel:
    """A model ready for a service."""
    tokenizer = TextTokenizer(
        word_tokenizer(), vocab_size=VOCAB_SIZE, max_input_tokens=MAX_INPUT_TOKENS
    )
    named = dict(prompts or {})
    info = ModelInfo(
        name="fake",
        kind=kind,
        artifact_id="sha256:" + "0" * 64,
        format_version=1,
        target_name="cpu-x86_64-avx2-f32",
        backend=Backend.AOTI,
        device=Device.CPU,
        precision=Precision.FLOAT32,
        vocab_size=VOCAB_SIZE,
        max_input_tokens=MAX_INPUT_TOKENS,
        max_batch_tokens=engine.limits.max_tokens,
        fill_tokens=fill_tokens,
        max_batch_items=engine.limits.max_sequences,
        width=WIDTH,
        pooling=(PoolingMode.MEAN,),
        prompt_names=tuple(named),
        capabilities=capabilities,
        source_revision=None,
    )
    return LoadedModel(
        engine=engine,
        tokenizer=tokenizer,
        prompts=PromptTable(named=named, default=default_prompt),
        info=info,
        position_offset=0,
        pooled_output="pooled",
        seconds={},
    )
