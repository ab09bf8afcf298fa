"""Loaded models around the fake engine, with a word tokenizer whose ids are plain to see."""

import tokenizers
from tokenizers import models, pre_tokenizers, processors

from fake_engine import WIDTH, FakeEngine
from infinity_v3.artifacts.manifest import (
    Backend,
    Device,
    Heads,
    Kind,
    PairTemplate,
    PoolingMode,
    Precision,
)
from infinity_v3.runtime.capabilities import capabilities_of
from infinity_v3.runtime.chat_template import ChatRenderer
from infinity_v3.runtime.loading import LoadedModel
from infinity_v3.runtime.model_info import ModelInfo
from infinity_v3.runtime.outputs import HIDDEN_OUTPUT, MAIN_OUTPUTS
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
        single="<s> $A </s>",
        pair="<s> $A </s> $B:1 </s>:1",
        special_tokens=[("<s>", START), ("</s>", END)],
    )
    return tokenizer


def fake_model(  # noqa: PLR0913  # a model's facts
    engine: FakeEngine,
    *,
    kind: Kind = Kind.EMBEDDING,
    heads: Heads | None = None,
    prompts: PromptTable | None = None,
    pair_template: PairTemplate | None = None,
    chat: ChatRenderer | None = None,
    fill_tokens: int = 256,
) -> LoadedModel:
    """A model ready for a service; its outputs are those of the engine."""
    tokenizer = TextTokenizer(
        word_tokenizer(),
        vocab_size=VOCAB_SIZE,
        max_input_tokens=MAX_INPUT_TOKENS,
        pair_template=pair_template,
        chat=chat,
    )
    heads = heads or Heads()
    table = prompts or PromptTable(named={})
    outputs = {spec.name for spec in engine.graph.outputs}
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
        labels=heads.labels,
        problem_type=heads.problem_type,
        prompt_names=table.names,
        capabilities=capabilities_of(kind, has_token_output=HIDDEN_OUTPUT in outputs),
        has_chat_template=chat is not None,
        source_revision=None,
    )
    return LoadedModel(
        engine=engine,
        tokenizer=tokenizer,
        prompts=table,
        info=info,
        position_offset=0,
        main_output=MAIN_OUTPUTS[kind],
        heads=heads,
        seconds={},
    )
