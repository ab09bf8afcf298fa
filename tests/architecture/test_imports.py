"""What the serving modules load: no modelling code, no Python torch.

Imports that wait for the first request are checked on a running server, in tests/e2e.
"""

import subprocess
import sys

import pytest

DENIED = (
    "torch",
    "transformers",
    "torch._inductor",
    "torch._dynamo",
    "jinja2",  # loaded for the first conversation
    "infinity_v3.compiler",
    "infinity_v3.model_specs",
)
SERVING_MODULES = ("infinity_v3.server.app", "infinity_v3.runtime.service")
STANDARD_LIBRARY_ONLY = (
    "infinity_v3.artifacts.manifest",
    "infinity_v3.artifacts.store",
    "infinity_v3.artifacts.errors",
)


def _modules_after(statement: str) -> set[str]:
    """Names in sys.modules after the statement, in a fresh interpreter outside the source tree."""
    result = subprocess.run(
        [sys.executable, "-c", f"{statement}\nimport sys\nprint(*sys.modules, sep='\\n')"],
        capture_output=True,
        text=True,
        cwd="/",
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return set(result.stdout.split())


@pytest.mark.parametrize("module", SERVING_MODULES)
def test_serving_modules_load_no_modelling_code(module: str) -> None:
    modules = _modules_after(f"import {module}")
    assert module in modules
    assert not modules.intersection(DENIED)


@pytest.mark.parametrize("module", STANDARD_LIBRARY_ONLY)
def test_artifacts_load_the_standard_library_only(module: str) -> None:
    before = _modules_after("pass")
    loaded = {name.split(".")[0] for name in _modules_after(f"import {module}") - before}
    assert loaded - {"infinity_v3"} <= set(sys.stdlib_module_names)


def test_the_runtime_loads_without_the_server() -> None:
    modules = _modules_after("import infinity_v3.runtime.service")
    assert not {
        name for name in modules if name.startswith(("infinity_v3.server", "granian", "click"))
    }


def test_folder_names_are_not_importable_from_elsewhere() -> None:
    script = (
        "import importlib.util as u\n"
        "found = [n for n in ('artifacts', 'compiler', 'model_specs', 'runtime', 'server')"
        " if u.find_spec(n)]\n"
        "raise SystemExit(', '.join(found))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd="/",
        timeout=60,
        check=False,
    )
    assert result.stderr.strip() == "", f"importable by their bare names: {result.stderr}"
