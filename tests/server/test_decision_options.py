"""Names and protocols of decision models as the configuration gives them."""

import pytest

from fake_artifact import make_manifest
from fake_decision import make_decision
from fake_service import FakeService, model_info
from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import Kind, Manifest
from infinity_v3.server.config import ModelConfig
from infinity_v3.server.decision_options import check_protocol, read_aliases
from infinity_v3.server.served import ModelTable, ServedModel


def served(name: str, kind: Kind = Kind.DECISION) -> ServedModel:
    return ServedModel(
        name=name,
        service=FakeService(kind=kind),
        info=model_info(name, kind),
        config=ModelConfig(model_id=name),
        num_tokenizer_threads=1,
        created_s=0,
    )


MODELS = [served("plain", Kind.EMBEDDING), served("first"), served("second")]


def test_aliases_and_what_is_meant_without_them() -> None:
    table = ModelTable(MODELS, read_aliases(["old=second", "jev-preview=second"], MODELS))
    names = {"jev-latest": "first", "jev-preview": "second", "old": "second", "first": "first"}
    for asked, meant in names.items():
        assert table.route_decision(asked).name == meant
    only = ModelTable(MODELS[:1])
    assert only.route_decision("jev-latest").name == "plain"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["old=plain"], "expected the name of a decision model (first, second), found 'plain'"),
        (["old=frist"], "did you mean first"),
        (["old=first", "old=second"], "'old' is a name already"),
        (["second=first"], "'second' is a name already"),
    ],
)
def test_wrong_aliases_are_refused(values: list[str], message: str) -> None:
    with pytest.raises(UsageError) as refusal:
        read_aliases(values, MODELS)
    assert message in str(refusal.value)


def decision_manifest() -> Manifest:
    return make_manifest(kind=Kind.DECISION, decision=make_decision())


def test_a_protocol_has_to_be_the_artifacts_own() -> None:
    check_protocol(None, make_manifest())
    check_protocol("laya", decision_manifest())
    for manifest, message in (
        (decision_manifest(), "is compiled for laya"),
        (make_manifest(), "is no decision model"),
    ):
        with pytest.raises(UsageError) as refusal:
            check_protocol("onejev", manifest)
        assert message in str(refusal.value)
