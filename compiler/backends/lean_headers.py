"""Headers of ours that make an engine quicker to compile, where they say what the usual ones do."""

import shlex
from pathlib import Path

_OURS = Path(__file__).with_name("headers")
_AOTI_RUNTIME = "torch/csrc/inductor/aoti_runtime"
_WORDS = ("regex", "smatch")
_EXPECTED = {
    "#include <regex>",
    'std::regex re("(cpu|cuda|xpu|mps)(:([0-9]+))?");',
    "std::smatch sm;",
    "bool matched = std::regex_match(device_str, sm, re);",
}
"""All that AOTInductor's headers say about regular expressions: what `headers/regex` can do."""


def lean_header_flags(include_folders: list[str]) -> str:
    """Options that let the compiler find our headers first; none where they would not be enough.

    Args:
        include_folders: where torch's headers lie, as torch itself gives them.
    """
    found: set[str] = set()
    for folder in include_folders:
        for header in sorted((Path(folder) / _AOTI_RUNTIME).glob("*.h")):
            lines = header.read_text(encoding="utf-8").splitlines()
            found |= {line.strip() for line in lines if any(word in line for word in _WORDS)}
    return f"-I{shlex.quote(str(_OURS))}" if found == _EXPECTED else ""
