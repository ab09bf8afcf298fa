import pytest

from infinity_v3.compiler.families import register_families
from infinity_v3.compiler.packed import install_packed_attention


@pytest.fixture(autouse=True)
def families() -> None:
    install_packed_attention()
    register_families()
