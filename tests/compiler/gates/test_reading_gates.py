"""Gates that read: each with inputs that pass and inputs that fail."""

from dataclasses import replace

import pytest

from fake_artifact import make_manifest, make_target
from gate_registry import ACTOR, make_promotion, make_side, rows
from infinity_v3.artifacts.manifest import Graph, TensorSpec
from infinity_v3.artifacts.registry.ed25519 import Ed25519Signer, Ed25519Verifier
from infinity_v3.artifacts.registry.records import GateFigure
from infinity_v3.artifacts.registry.signing import version_message
from infinity_v3.compiler.gates.actors_gate import actor_figures
from infinity_v3.compiler.gates.parity_gate import parity_figures
from infinity_v3.compiler.gates.policy import ChannelPolicy
from infinity_v3.compiler.gates.promotion import Promotion
from infinity_v3.compiler.gates.signature_gate import Trust, signature_figures
from infinity_v3.compiler.gates.targets_gate import target_figures

AVX2, BF16 = "cpu-x86_64-avx2-f32", "cpu-x86_64-avx512-bf16"
BUILD = {
    "parity": {
        AVX2: {"pooled_mean.max_abs": 1.5e-6, "pooled_mean.min_cosine": 0.9999999},
        BF16: {"pooled_mean.max_abs": 0.004, "pooled_mean.min_cosine": 0.99951},
    }
}


def details(figures: tuple[GateFigure, ...]) -> list[str]:
    return [figure.detail for figure in figures if not figure.passed]


def parity(promotion: Promotion) -> tuple[GateFigure, ...]:
    return tuple(parity_figures(promotion))


def test_parity_of_every_target_must_have_passed() -> None:
    failed = make_target(AVX2, parity=replace(make_target().parity, passed=False))
    candidate = make_side(targets=(failed, make_target("other")))
    found = parity(make_promotion(ChannelPolicy(), candidate=candidate))
    assert rows(found) == [
        ("parity", AVX2, "failed", False),
        ("parity", "other", "passed", True),
    ]
    assert found[0].detail == "3 probes against transformers fp32 eager"


@pytest.mark.parametrize(
    ("policy", "value", "candidate", "bound"),
    [
        (ChannelPolicy(min_cosine=1.0), 0.999999999, "0.999999999", ">= 1"),
        (ChannelPolicy(min_cosine=0.99999999), 0.9999999899, "0.9999999899", ">= 0.99999999"),
        (ChannelPolicy(max_abs=1e-5), 1.0001e-5, "1.0001e-05", "<= 1e-05"),
    ],
)
def test_a_figure_that_fails_reads_as_failing(
    policy: ChannelPolicy, value: float, candidate: str, bound: str
) -> None:
    parities = {AVX2: {"pooled_mean.max_abs": value, "pooled_mean.min_cosine": value}}
    side = make_side(targets=(make_target(AVX2),), build={"parity": parities})
    *_, figure = parity(make_promotion(policy, candidate=side))
    assert (figure.candidate, figure.bound, figure.passed) == (candidate, bound, False)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (
            ChannelPolicy(min_cosine=0.9995),
            [
                ("min-cosine", AVX2, "0.99999990", True),
                ("min-cosine", BF16, "0.99951000", True),
            ],
        ),
        (
            ChannelPolicy(min_cosine=0.9996),
            [
                ("min-cosine", AVX2, "0.99999990", True),
                ("min-cosine", BF16, "0.99951000", False),
            ],
        ),
        (
            ChannelPolicy(max_abs=1e-5),
            [("max-abs", AVX2, "1.5e-06", True), ("max-abs", BF16, "0.004", False)],
        ),
        (
            ChannelPolicy(max_abs=0.004),
            [("max-abs", AVX2, "1.5e-06", True), ("max-abs", BF16, "0.004", True)],
        ),
    ],
)
def test_figures_are_held_to_the_bounds(
    policy: ChannelPolicy, expected: list[tuple[str, str, str | None, bool]]
) -> None:
    found = parity(make_promotion(policy, candidate=make_side(build=BUILD)))
    assert rows(found[2:]) == expected
    assert all(figure.current is None for figure in found)


def test_the_worst_output_counts_and_the_current_artifact_is_shown() -> None:
    specs = tuple(TensorSpec(name=name, dtype="float32", dims=("B", 8)) for name in ("a", "b"))
    candidate = make_side(targets=(make_target(AVX2),))
    candidate = replace(
        candidate,
        manifest=replace(candidate.manifest, graph=Graph(inputs=(), outputs=specs)),
        build={"parity": {AVX2: {"a.max_abs": 1e-6, "b.max_abs": 3e-6, "b.batch_max_abs": 9.0}}},
    )
    promotion = make_promotion(
        ChannelPolicy(max_abs=2e-6), candidate=candidate, current=make_side("1.0", build=BUILD)
    )
    (found,) = parity(promotion)[1:]
    assert rows((found,)) == [("max-abs", AVX2, "3e-06", False)]
    assert found.current == "1.5e-06"
    assert found.bound == "<= 2e-06"


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (None, f"build.json has no parity figures of {AVX2}"),
        ({}, f"build.json has no parity figures of {AVX2}"),
        ({"parity": []}, f"build.json has no parity figures of {AVX2}"),
        ({"parity": {AVX2: 1}}, f"build.json has no parity figures of {AVX2}"),
        ({"parity": {AVX2: {}}}, f"build.json lacks pooled_mean.min_cosine of {AVX2}"),
        (
            {"parity": {AVX2: {"pooled_mean.min_cosine": True}}},
            f"build.json lacks pooled_mean.min_cosine of {AVX2}",
        ),
        (
            {"parity": {AVX2: {"pooled_mean.min_cosine": float("nan")}}},
            f"build.json: pooled_mean.min_cosine of {AVX2} is not finite",
        ),
    ],
)
def test_absent_figures_fail_with_a_sentence(build: object, sentence: str) -> None:
    candidate = make_side(targets=(make_target(AVX2),), build=build)
    found = parity(make_promotion(ChannelPolicy(min_cosine=0.9), candidate=candidate))
    assert rows(found[1:]) == [("min-cosine", AVX2, None, False)]
    assert details(found) == [sentence]


def test_the_cosine_of_logits_is_not_asked_for() -> None:
    logits = Graph(inputs=(), outputs=(TensorSpec(name="logits", dtype="float32", dims=("B", 1)),))
    figures = {"logits.max_abs": 1e-6, "logits.min_cosine": -1.0}
    side = make_side(targets=(make_target(AVX2),), build={"parity": {AVX2: figures}})
    side = replace(side, manifest=replace(side.manifest, graph=logits))
    found = parity(make_promotion(ChannelPolicy(min_cosine=0.9, max_abs=1e-5), candidate=side))
    assert rows(found[1:]) == [
        ("min-cosine", AVX2, None, True),
        ("max-abs", AVX2, "1e-06", True),
    ]
    assert found[1].detail == "no output of it is a vector"


def test_required_targets_must_be_there() -> None:
    policy = ChannelPolicy(required_targets=(AVX2, "cpu-x86_64-avx2-f23"))
    promotion = make_promotion(policy, current=make_side("1.0", targets=(make_target("other"),)))
    found = tuple(target_figures(promotion))
    assert rows(found) == [
        ("required-targets", AVX2, "present", True),
        ("required-targets", "cpu-x86_64-avx2-f23", "absent", False),
    ]
    assert [figure.current for figure in found] == ["absent", "absent"]
    assert details(found) == [f"targets: {AVX2}, {BF16}; did you mean {AVX2}?"]


def test_only_named_actors_promote() -> None:
    assert not tuple(actor_figures(make_promotion(ChannelPolicy())))
    policy = ChannelPolicy(actors=("0123456789abcdef", ACTOR))
    assert rows(tuple(actor_figures(make_promotion(policy)))) == [
        ("actors", "who promotes", ACTOR, True)
    ]
    (found,) = actor_figures(make_promotion(policy, actor="unverified:bob"))
    assert not found.passed
    assert found.bound == "one of 0123456789abcdef, unverified:alice"
    assert found.detail == "promote with --sign-key FILE of an allowed key, or as an allowed user"


def signer() -> tuple[Ed25519Signer, Ed25519Verifier]:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    return Ed25519Signer(key), Ed25519Verifier([key.public_key()])


def test_a_valid_signature_of_a_trusted_key_is_asked_for() -> None:
    assert not tuple(signature_figures(make_promotion(ChannelPolicy()), None))
    (ours, verifier), (stranger, _) = signer(), signer()
    side = make_side()
    message = version_message(side.name, side.version, side.id)
    valid = {ours.key_id: ours.sign(message)}
    other = {ours.key_id: ours.sign(version_message(side.name, "9.9", side.id))}
    foreign = {stranger.key_id: stranger.sign(message)}
    for signatures, word in (
        (valid, ours.key_id),
        (other, "no valid signature"),
        (foreign, "no valid signature"),
        ({}, "unsigned"),
    ):
        promotion = make_promotion(ChannelPolicy(), actor=ours.key_id)
        trust = Trust(verifier=verifier, candidate=signatures, current={})
        found = tuple(signature_figures(promotion, trust))
        assert rows(found) == [
            ("require-signature", "version 2.0", word, word == ours.key_id),
            ("require-signature", "this promotion", ours.key_id, True),
        ]


@pytest.mark.parametrize("actor", [ACTOR, "0123456789abcdef"])
def test_a_promotion_itself_must_be_signed_by_a_trusted_key(actor: str) -> None:
    ours, verifier = signer()
    side = make_side()
    signatures = {ours.key_id: ours.sign(version_message(side.name, side.version, side.id))}
    trust = Trust(verifier=verifier, candidate=signatures, current={})
    found = tuple(signature_figures(make_promotion(ChannelPolicy(), actor=actor), trust))
    assert [figure.passed for figure in found] == [True, False]
    assert details(found) == [f"promote with --sign-key FILE of {ours.key_id}"]


def test_fake_targets_are_the_ones_that_these_tests_name() -> None:
    assert [target.name for target in make_manifest().targets] == [AVX2, BF16]
