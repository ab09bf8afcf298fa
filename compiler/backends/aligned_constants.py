"""Lets an engine keep its embedded weights where cache lines begin.

AOTInductor copies them into memory from `malloc`, at an address that is a multiple of 16: every 64
bytes of weights that a kernel reads lie in two lines, and products take a fifth longer. So a copy
of the header that asks for the memory, with the request changed, is found before the original.
"""

import shlex
from pathlib import Path
from uuid import uuid4

LINE_BYTES = 64
_HEADER = Path("torch/csrc/inductor/aoti_runtime/model_base.h")
_USUAL = "std::malloc(num_bytes)"
_LINES = f"(num_bytes + {LINE_BYTES - 1}) / {LINE_BYTES}"
_ALIGNED = f"std::aligned_alloc({LINE_BYTES}, {_LINES} * {LINE_BYTES})"


def aligned_constants_flags(include_folders: list[str], folder: Path) -> str:
    """Options that let the compiler find the changed header; none where it is another one.

    Args:
        include_folders: where torch's headers lie, as torch itself gives them.
        folder: receives the header; kept between builds.
    """
    found = [Path(one) / _HEADER for one in include_folders if (Path(one) / _HEADER).is_file()]
    if not found:
        return ""
    usual = found[0].read_text(encoding="utf-8")
    if usual.count(_USUAL) != 1:
        return ""
    _write(folder / _HEADER, usual.replace(_USUAL, _ALIGNED))
    return f"-I{shlex.quote(str(folder))}"


def _write(path: Path, text: str) -> None:
    """Write a file whole, unless it is there: another build may read it now."""
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{uuid4().hex}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
