"""Loading: settings against the artifact, what is reported, what is closed after a failure."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import tokenizers

from fake_artifact import make_manifest, make_target
from fake_engine import WIDTH, FakeEngine
from infinity_v3.artifacts.errors import InfinityError, RefusedError, RunFailedError, UsageError
from infinity_v3.artifacts.manifest import (
    Heads,
    Kind,
    LateInteraction,
    Limits,
    PairTemplate,
    Pooling,
    PoolingMode,
    Prompts,
    ScoreActivation,
    Target,
)
from infinity_v3.artifacts.profile import Profile, TargetProfile, write_profile
from infinity_v3.artifacts.store import Artifact
from infinity_v3.runtime.batch_sizes import SizeSettings
from infinity_v3.runtime.engine import EngineError, EngineLoadError, EngineSettings
from infinity_v3.runtime.loading import LoadedModel, LoadSettings, load_model
from infinity_v3.runtime.placement import place
from tiny_models import VOCAB_SIZE, word_tokenizer

ARTIFACT_ID = "sha256:" + "a" * 64
OUTPUTS = ("pooled", "pooled_cls", "hidden")
LENGTH = 64


class Loader:
    """Gives a fake engine instead of opening files."""

    def __init__(self, engine: FakeEngine) -> None:
        self.engine = engine
        self.settings: EngineSettings | None = None

    def __call__(self, artifact: Artifact, target: Target, settings: EngineSettings) -> FakeEngine:
        self.settings = settings
        return self.engine


def make_artifact(path: Path, **overrides: object) -> Artifact:
    manifest = make_manifest(targets=(make_target(),))
    changes: dict[str, object] = {
        "model": replace(manifest.model, vocab_size=VOCAB_SIZE, max_input_tokens=LENGTH),
        "tokenizer": replace(
            manifest.tokenizer, length=replace(manifest.tokenizer.length, max_tokens=LENGTH)
        ),
        "heads": Heads(
            pooling=Pooling(modes=(PoolingMode.MEAN,), alternatives=(PoolingMode.CLS,)),
            dimensions=WIDTH,
        ),
        "prompts": Prompts(named={"query": "q: ", "passage": "p: "}, default="query"),
        "graph": FakeEngine(outputs=OUTPUTS).graph,
    }
    manifest = replace(manifest, **(changes | overrides))  # type: ignore[arg-type]
    (path / "tokenizer").mkdir()
    word_tokenizer().save(str(path / manifest.tokenizer.file))
    return Artifact(path=path, manifest=manifest, artifact_id=ARTIFACT_ID)


def load(artifact: Artifact, settings: LoadSettings | None = None, **target: object) -> LoadedModel:
    loader = Loader(FakeEngine(outputs=OUTPUTS))
    chosen = make_target(**target)  # type: ignore[arg-type]
    return load_model(artifact, chosen, settings or LoadSettings(), engine_loader=loader)


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return make_artifact(tmp_path)


def test_facts_for_the_server(artifact: Artifact) -> None:
    model = load(artifact)
    info = model.info
    assert (info.name, info.artifact_id) == ("fake-encoder", ARTIFACT_ID)
    assert (info.max_input_tokens, info.width) == (LENGTH, WIDTH)
    assert info.max_batch_tokens == 16384
    assert info.fill_tokens <= info.max_batch_tokens
    assert info.pooling == (PoolingMode.MEAN,)
    assert info.prompt_names == ("query", "passage")
    assert info.capabilities == {"embed", "embed_all", "score", "similarity", "tokenize"}
    assert model.prompts.text(None) == "q: "
    assert model.notes == ()
    assert set(model.seconds) == {"load", "warmup"}


def test_an_artifact_without_token_output(tmp_path: Path) -> None:
    model = load(make_artifact(tmp_path, graph=FakeEngine(outputs=("pooled",)).graph))
    assert model.info.capabilities == {"embed", "score", "similarity", "tokenize"}


KINDS: list[tuple[Kind, str, Heads, set[str]]] = [
    (Kind.SPARSE, "sparse", Heads(), {"embed_sparse", "tokenize"}),
    (
        Kind.LATE_INTERACTION,
        "token_vectors",
        Heads(late_interaction=LateInteraction()),
        {"embed", "embed_all", "tokenize"},
    ),
    (
        Kind.RERANKER,
        "logits",
        Heads(labels=("relevance",), activation=ScoreActivation.SIGMOID),
        {"rerank", "classify", "score", "tokenize"},
    ),
    (
        Kind.CLASSIFIER,
        "logits",
        Heads(labels=("a", "b"), activation=ScoreActivation.SOFTMAX, problem_type="x"),
        {"classify", "tokenize"},
    ),
    (Kind.TOKEN_CLASSIFIER, "token_logits", Heads(), {"token_classify", "tokenize"}),
]


def load_kind(path: Path, kind: Kind, output: str, heads: Heads, width: int) -> LoadedModel:
    engine = FakeEngine(outputs=(output,), width=width)
    artifact = make_artifact(path, kind=kind, heads=heads, graph=engine.graph)
    return load_model(artifact, make_target(), LoadSettings(), engine_loader=Loader(engine))


@pytest.mark.parametrize(("kind", "output", "heads", "capabilities"), KINDS)
def test_every_kind_has_its_output(
    tmp_path: Path, kind: Kind, output: str, heads: Heads, capabilities: set[str]
) -> None:
    width = len(heads.labels) or WIDTH
    model = load_kind(tmp_path, kind, output, heads, width)
    assert (model.main_output, model.heads) == (output, heads)
    assert model.info.capabilities == capabilities
    assert model.info.problem_type == heads.problem_type
    assert model.info.width == (WIDTH if kind is Kind.LATE_INTERACTION else None)
    assert isinstance(model.engine, FakeEngine)
    assert len(model.engine.batches) == 1


def test_labels_without_names_are_numbered(tmp_path: Path) -> None:
    model = load_kind(tmp_path, Kind.TOKEN_CLASSIFIER, "token_logits", Heads(), 3)
    assert model.info.labels == ("LABEL_0", "LABEL_1", "LABEL_2")


SIGMOID = ScoreActivation.SIGMOID


@pytest.mark.parametrize(
    ("kind", "output", "heads", "message"),
    [
        (Kind.CLASSIFIER, "logits", Heads(activation=SIGMOID, labels=("a",)), "labels: expected 3"),
        (Kind.CLASSIFIER, "logits", Heads(), "activation: expected sigmoid, softmax or none"),
        (Kind.RERANKER, "logits", Heads(activation=SIGMOID), "expected one logit of a reranker"),
        (Kind.SPARSE, "pooled", Heads(), "expected 'sparse' .* as sparse models have"),
    ],
)
def test_an_artifact_that_lacks_what_its_kind_needs_is_refused(
    tmp_path: Path, kind: Kind, output: str, heads: Heads, message: str
) -> None:
    with pytest.raises(RefusedError, match=message):
        load_kind(tmp_path, kind, output, heads, 3)


@pytest.mark.parametrize(
    ("prompts", "settings", "text", "name"),
    [
        (Prompts(), LoadSettings(), "", None),
        (Prompts(), LoadSettings(default_prompt_name="query"), "", "query"),
        (Prompts(named={"query": "q: "}, default="query"), LoadSettings(), "q: ", "query"),
        (
            Prompts(named={"query": "q: "}, default="query"),
            LoadSettings(default_prompt="x"),
            "x",
            None,
        ),
    ],
)
def test_sides_of_late_interaction_are_always_prompts(
    tmp_path: Path, prompts: Prompts, settings: LoadSettings, text: str, name: str | None
) -> None:
    engine = FakeEngine(outputs=("token_vectors",))
    artifact = make_artifact(
        tmp_path,
        kind=Kind.LATE_INTERACTION,
        heads=Heads(late_interaction=LateInteraction()),
        graph=engine.graph,
        prompts=prompts,
    )
    model = load_model(artifact, make_target(), settings, engine_loader=Loader(engine))
    assert model.info.prompt_names == ("query", "document")
    assert (model.prompts.text(None), model.prompts.name(None)) == (text, name)
    assert model.prompts.name("document") == "document"


def test_a_reranker_needs_room_beside_its_template(tmp_path: Path) -> None:
    engine = FakeEngine(outputs=("logits",), width=1)
    template = PairTemplate(
        before="w5 w6 w7 ", between=" w8 ", after=" w9", adds_special_tokens=True
    )
    tokenizer = make_manifest().tokenizer
    artifact = make_artifact(
        tmp_path,
        kind=Kind.RERANKER,
        heads=Heads(activation=SIGMOID),
        graph=engine.graph,
        tokenizer=replace(tokenizer, pair_template=template),
    )
    settings = LoadSettings(sizes=SizeSettings(max_sequence_length=7))
    with pytest.raises(UsageError, match="--max-sequence-length 7: expected at least 8"):
        load_model(artifact, make_target(), settings, engine_loader=Loader(engine))


def test_a_template_that_the_tokenizer_cannot_read_is_refused(tmp_path: Path) -> None:
    engine = FakeEngine(outputs=("logits",), width=1)
    template = PairTemplate(before="x ", between=" ", after="", adds_special_tokens=False)
    artifact = make_artifact(
        tmp_path,
        kind=Kind.RERANKER,
        heads=Heads(activation=SIGMOID),
        graph=engine.graph,
        tokenizer=replace(make_manifest().tokenizer, pair_template=template),
    )
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="<unk>"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    backend.save(str(artifact.path / artifact.manifest.tokenizer.file))
    with pytest.raises(RefusedError, match=r"tokenizer\.pair_template: the tokenizer failed"):
        load_model(artifact, make_target(), LoadSettings(), engine_loader=Loader(engine))
    assert engine.is_closed


def test_warm_up_is_one_short_call_of_every_output(artifact: Artifact) -> None:
    model = load(artifact)
    engine = model.engine
    assert isinstance(engine, FakeEngine)
    (batch,) = engine.batches
    assert 2 <= sum(len(ids) for ids in batch) <= 64
    assert engine.outputs == [frozenset(OUTPUTS)]


def test_threads_reach_the_engine(artifact: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))
    loader = Loader(FakeEngine(outputs=OUTPUTS))
    load_model(artifact, make_target(), LoadSettings(num_threads=3), engine_loader=loader)
    assert loader.settings == EngineSettings(num_threads=3)
    loader = Loader(FakeEngine(outputs=OUTPUTS))
    load_model(artifact, make_target(), LoadSettings(), engine_loader=loader)
    assert loader.settings is not None
    assert loader.settings.num_threads >= 1


def test_replicas_reach_the_engine_with_cpus_of_their_own(artifact: Artifact) -> None:
    loader = Loader(FakeEngine(outputs=OUTPUTS))
    num_cpus = len(os.sched_getaffinity(0))
    settings = LoadSettings(num_replicas=num_cpus, num_threads=1)
    model = load_model(artifact, make_target(), settings, engine_loader=loader)
    assert loader.settings == EngineSettings(num_threads=1, num_replicas=num_cpus)
    assert model.replica_cpus == place(num_cpus, 1).cpus
    facts = TargetProfile(num_threads=1, num_replicas=num_cpus)
    write_profile(artifact.path, Profile(targets={make_target().name: facts}))
    assert load(artifact).replica_cpus == place(num_cpus, 1).cpus
    too_many = LoadSettings(num_replicas=num_cpus + 1)
    with pytest.raises(UsageError, match=f"--cpu-replicas {num_cpus + 1} with 1 threads each"):
        load_model(artifact, make_target(), too_many, engine_loader=loader)


@pytest.mark.parametrize(
    ("sizes", "limit", "expected"),
    [
        (SizeSettings(), 16384, (64, 16384)),
        (SizeSettings(max_sequence_length=10), 16384, (10, 16384)),
        (SizeSettings(max_batch_tokens=64), 16384, (64, 64)),
        (SizeSettings(max_batch_tokens=100), 16384, (64, 100)),
        (SizeSettings(max_sequence_length=10, max_batch_tokens=10), 16384, (10, 10)),
        (SizeSettings(), 32768, (64, 16384)),
        (SizeSettings(max_batch_tokens=20000), 32768, (64, 20000)),
    ],
)
def test_sizes_in_force(
    artifact: Artifact, sizes: SizeSettings, limit: int, expected: tuple[int, int]
) -> None:
    limits = Limits(max_tokens=limit, max_sequences=8)
    model = load(artifact, LoadSettings(sizes=sizes), limits=limits)
    assert (model.info.max_input_tokens, model.info.max_batch_tokens) == expected
    assert model.info.fill_tokens <= expected[1]
    assert model.info.max_batch_items == 8
    assert model.notes == ()


def test_the_profile_decides_what_was_left_open(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    name = make_target().name
    facts = TargetProfile(fill_tokens=777, num_threads=1, tokens_per_s=1234.5)
    write_profile(artifact.path, Profile(targets={name: facts, "other": TargetProfile()}))
    loader = Loader(FakeEngine(outputs=OUTPUTS))
    model = load_model(artifact, make_target(), LoadSettings(), engine_loader=loader)
    assert (model.info.fill_tokens, model.measured_tokens_per_s) == (777, 1234.5)
    assert loader.settings == EngineSettings(num_threads=1)
    small = LoadSettings(sizes=SizeSettings(max_batch_tokens=100), num_threads=5)
    loader = Loader(FakeEngine(outputs=OUTPUTS))
    model = load_model(artifact, make_target(), small, engine_loader=loader)
    assert model.info.fill_tokens == 100
    assert loader.settings == EngineSettings(num_threads=5)


@pytest.mark.parametrize(
    ("facts", "fragment"),
    [
        (TargetProfile(fill_tokens=1), "as the 1 of profile.json are not between 64 and 16384"),
        (TargetProfile(fill_tokens=63), "as the 63 of profile.json"),
        (TargetProfile(fill_tokens=16385), "as the 16385 of profile.json"),
        (TargetProfile(num_threads=2000), "as the 2000 threads that were measured"),
        (TargetProfile(num_threads=2000, num_replicas=2), "as the 2 of 2000 threads"),
        (TargetProfile(spin_count=300_001), "as the 300001 that were measured"),
    ],
)
def test_a_profile_that_does_not_fit_is_not_taken(
    artifact: Artifact, facts: TargetProfile, fragment: str
) -> None:
    """Whoever may write a profile must not be able to make a server slow."""

    def loaded() -> tuple[LoadedModel, EngineSettings | None]:
        loader = Loader(FakeEngine(outputs=OUTPUTS))
        model = load_model(artifact, make_target(), LoadSettings(), engine_loader=loader)
        return model, loader.settings

    default, settings = loaded()
    write_profile(artifact.path, Profile(targets={make_target().name: facts}))
    model, found = loaded()
    assert (model.info, found) == (default.info, settings)
    (note,) = model.notes
    assert fragment in note


@pytest.mark.parametrize("fill_tokens", [64, 16384])
def test_whatever_can_be_measured_is_taken(artifact: Artifact, fill_tokens: int) -> None:
    facts = TargetProfile(fill_tokens=fill_tokens, spin_count=300_000)
    write_profile(artifact.path, Profile(targets={make_target().name: facts}))
    model = load(artifact)
    assert (model.info.fill_tokens, model.notes) == (fill_tokens, ())


def test_defaults_give_way_and_say_so(artifact: Artifact) -> None:
    model = load(artifact, limits=Limits(max_tokens=40, max_sequences=8))
    assert (model.info.max_input_tokens, model.info.max_batch_tokens) == (40, 40)
    lowered, shortened = model.notes
    assert "--max-batch-tokens: default 16384 lowered to 40" in lowered
    assert "from 64 to 40 tokens" in shortened


def test_the_shorter_of_both_stored_limits_wins(tmp_path: Path) -> None:
    artifact = make_artifact(tmp_path)
    facts = replace(artifact.manifest.model, max_input_tokens=30)
    artifact = replace(artifact, manifest=replace(artifact.manifest, model=facts))
    assert load(artifact).info.max_input_tokens == 30


CONTRADICTIONS = [
    (LoadSettings(sizes=SizeSettings(max_batch_tokens=16385)), "--max-batch-tokens 16385"),
    (LoadSettings(sizes=SizeSettings(max_batch_tokens=0)), "expected at most 16384"),
    (LoadSettings(sizes=SizeSettings(max_sequence_length=65)), "--max-sequence-length 65"),
    (LoadSettings(sizes=SizeSettings(max_sequence_length=0)), "expected at most 64"),
    (
        LoadSettings(sizes=SizeSettings(max_sequence_length=20, max_batch_tokens=10)),
        "raise --max-batch-tokens",
    ),
    (
        LoadSettings(sizes=SizeSettings(max_batch_tokens=10, is_truncating=False)),
        "--auto-truncate is off",
    ),
    (LoadSettings(pooling=PoolingMode.MAX), "expected one compiled into .*mean, cls"),
    (LoadSettings(default_prompt_name="nope"), "expected one of query, passage"),
    (LoadSettings(default_prompt_name="query", default_prompt="x"), "exclude each other"),
]


@pytest.mark.parametrize(("settings", "message"), CONTRADICTIONS)
def test_contradictions_are_refused_before_anything_is_opened(
    artifact: Artifact, settings: LoadSettings, message: str
) -> None:
    def never(*_: object) -> FakeEngine:
        raise AssertionError("the engine was opened")

    with pytest.raises(UsageError, match=message):
        load_model(artifact, make_target(), settings, engine_loader=never)


@pytest.mark.parametrize(
    ("wanted", "output", "modes"),
    [
        (None, "pooled", (PoolingMode.MEAN,)),
        (PoolingMode.MEAN, "pooled", (PoolingMode.MEAN,)),
        (PoolingMode.CLS, "pooled_cls", (PoolingMode.CLS,)),
    ],
)
def test_pooling_picks_an_output(
    artifact: Artifact, wanted: PoolingMode | None, output: str, modes: tuple[PoolingMode, ...]
) -> None:
    model = load(artifact, LoadSettings(pooling=wanted))
    assert (model.main_output, model.info.pooling) == (output, modes)
    assert model.info.width == WIDTH


@pytest.mark.parametrize(
    ("settings", "default"),
    [
        (LoadSettings(), "q: "),
        (LoadSettings(default_prompt_name="passage"), "p: "),
        (LoadSettings(default_prompt="literal "), "literal "),
        (LoadSettings(default_prompt=""), ""),
    ],
)
def test_the_default_prompt(artifact: Artifact, settings: LoadSettings, default: str) -> None:
    assert load(artifact, settings).prompts.text(None) == default


def _without_tokenizer(artifact: Artifact, _: FakeEngine) -> None:
    shutil.rmtree(artifact.path / "tokenizer")


def _with_broken_tokenizer(artifact: Artifact, _: FakeEngine) -> None:
    (artifact.path / "tokenizer/tokenizer.json").write_text("{")


def _with_failing_warm_up(_: Artifact, engine: FakeEngine) -> None:
    def fail() -> None:
        raise EngineError("no kernel")

    engine.poison = fail


@pytest.mark.parametrize(
    ("break_it", "error", "message"),
    [
        (_without_tokenizer, RefusedError, "expected a tokenizer.json"),
        (_with_broken_tokenizer, RefusedError, "expected a tokenizer.json"),
        (_with_failing_warm_up, RunFailedError, "warm-up call failed: no kernel"),
    ],
)
def test_a_failed_load_closes_the_engine(
    artifact: Artifact, break_it: object, error: type[InfinityError], message: str
) -> None:
    engine = FakeEngine(outputs=OUTPUTS)
    assert callable(break_it)
    break_it(artifact, engine)
    with pytest.raises(error, match=message):
        load_model(artifact, make_target(), LoadSettings(), engine_loader=Loader(engine))
    assert engine.is_closed


@pytest.mark.parametrize(
    ("sizes", "option"),
    [
        (SizeSettings(max_sequence_length=2), "--max-sequence-length 2"),
        (SizeSettings(max_batch_tokens=2), "--max-batch-tokens 2"),
    ],
)
def test_a_length_without_room_for_text_is_refused(
    artifact: Artifact, sizes: SizeSettings, option: str
) -> None:
    engine = FakeEngine(outputs=OUTPUTS)
    with pytest.raises(UsageError, match=f"{option}: expected at least 3"):
        load_model(artifact, make_target(), LoadSettings(sizes=sizes), engine_loader=Loader(engine))
    assert engine.is_closed
    no_prompt = LoadSettings(sizes=SizeSettings(max_sequence_length=3), default_prompt="")
    assert load(artifact, no_prompt).info.max_input_tokens == 3


def test_a_default_prompt_without_room_for_text_is_refused(artifact: Artifact) -> None:
    room = SizeSettings(max_sequence_length=6)
    engine = FakeEngine(outputs=OUTPUTS)
    too_long = LoadSettings(sizes=room, default_prompt="w5 w6 w7 w8 ")
    with pytest.raises(UsageError, match="the default prompt: expected fewer than 6 tokens"):
        load_model(artifact, make_target(), too_long, engine_loader=Loader(engine))
    assert engine.is_closed
    shorter = LoadSettings(sizes=room, default_prompt="w5 w6 w7 ")
    assert load(artifact, shorter).prompts.default == "w5 w6 w7 "


def test_a_broken_profile_names_the_artifact(artifact: Artifact) -> None:
    (artifact.path / "profile.json").write_text("junk")
    with pytest.raises(RefusedError, match=f"^{artifact.path}: profile.json"):
        load(artifact)


def test_a_pooling_of_a_local_checkpoint_is_compiled_from_its_directory(tmp_path: Path) -> None:
    source = replace(make_manifest().source, repository="local")
    with pytest.raises(UsageError, match="infinity-compile model CHECKPOINT --pooling"):
        load(make_artifact(tmp_path, source=source), LoadSettings(pooling=PoolingMode.MAX))


def test_a_default_prompt_of_a_model_without_prompts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="it has no prompts: drop the option"):
        load(
            make_artifact(tmp_path, prompts=Prompts(named={}, default=None)),
            LoadSettings(default_prompt_name="query"),
        )


def test_an_engine_that_cannot_be_opened_is_refused(artifact: Artifact) -> None:
    def refuse(*_: object) -> FakeEngine:
        raise EngineLoadError("symbol missing")

    with pytest.raises(RefusedError, match="cpu-x86_64-avx2-f32 cannot be loaded: symbol missing"):
        load_model(artifact, make_target(), LoadSettings(), engine_loader=refuse)
