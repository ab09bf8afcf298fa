"""Golden requests: the share of recorded answers that the candidate gives again.

Knows nothing of how an answer is compared.
"""

from collections.abc import Iterator

from infinity_v3.artifacts.errors import RefusedError, RunFailedError
from infinity_v3.artifacts.registry.records import GateFigure
from infinity_v3.compiler.gates.golden_answers import disagreement, tolerance_of
from infinity_v3.compiler.gates.golden_file import GoldenRequest, read_golden
from infinity_v3.compiler.gates.golden_server import AskedServer, asked_server
from infinity_v3.compiler.gates.policy_files import GoldenFile
from infinity_v3.compiler.gates.promotion import Fetch, Promotion, not_run
from infinity_v3.compiler.progress import Progress, Stage

MIN_GOLDEN_AGREEMENT = "min-golden-agreement"


def golden_not_run(promotion: Promotion, golden: GoldenFile | None) -> Iterator[GateFigure]:
    """The figure where a gate before has failed."""
    if golden is not None:
        yield not_run(MIN_GOLDEN_AGREEMENT, golden.name, _bound(promotion))


def golden_figures(
    promotion: Promotion, golden: GoldenFile | None, fetch: Fetch, progress: Progress
) -> Iterator[GateFigure]:
    """Serve the candidate and ask it every request; one figure, where the policy names a file.

    Args:
        promotion: the candidate and the policy.
        golden: the file that the policy names; None = it names none.
        fetch: gives the candidate's directory.
        progress: a stage is shown while requests are asked.
    """
    if golden is None:
        return
    if golden.data is None:
        problem = (
            "there is no such file; `infinity-compile registry record-golden` makes one from an "
            "artifact of the registry"
        )
        yield _figure(promotion, golden, None, problem)
        return
    try:
        requests = read_golden(golden.data, golden.name)
        artifact = fetch(promotion.candidate)
        with (
            progress.stage("golden requests", len(requests)) as stage,
            asked_server(artifact) as server,
        ):
            differences = [_ask(server, item, stage) for item in requests]
    except (RefusedError, RunFailedError) as error:
        yield _figure(promotion, golden, None, str(error))
        return
    yield _judge(promotion, golden, differences)


def _ask(server: AskedServer, golden: GoldenRequest, stage: Stage) -> str | None:
    """How the candidate's answer differs, None where it agrees."""
    request = golden.request
    answer = server.ask(request)
    stage.advance()
    found = answer.problem or disagreement(
        answer.document, golden.response, tolerance_of(request.tolerance)
    )
    return f"line {request.line}, {request.path}: {found}" if found else None


def _judge(promotion: Promotion, golden: GoldenFile, differences: list[str | None]) -> GateFigure:
    broken = [difference for difference in differences if difference is not None]
    count = len(differences)
    share = (count - len(broken)) / count
    detail = f"first that differs: {broken[0]}" if broken else ""
    passed = share >= promotion.policy.min_golden_agreement
    return _figure(
        promotion, golden, f"{share:.4g} ({count - len(broken)} of {count})", detail, passed=passed
    )


def _figure(
    promotion: Promotion,
    golden: GoldenFile,
    candidate: str | None,
    detail: str,
    *,
    passed: bool = False,
) -> GateFigure:
    return GateFigure(
        gate=MIN_GOLDEN_AGREEMENT,
        subject=golden.name,
        current=None,
        candidate=candidate,
        bound=_bound(promotion),
        passed=passed,
        detail=detail,
    )


def _bound(promotion: Promotion) -> str:
    return f">= {promotion.policy.min_golden_agreement:g}"
