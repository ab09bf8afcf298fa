"""Our stand-in for <regex> says what the standard's says, and is used only where that is enough."""

import subprocess
from pathlib import Path

import pytest
from torch.utils.cpp_extension import include_paths

from infinity_v3.compiler.backends import lean_headers
from infinity_v3.compiler.backends.lean_headers import lean_header_flags
from infinity_v3.compiler.toolchain import cxx_command
from tiny_artifacts import TinyArtifact

_HEADERS = Path(lean_headers.__file__).with_name("headers")
_DEVICES = (
    *("cpu", "cuda", "xpu", "mps", "cuda:0", "cuda:17", "cpu:00", "mps:1", "xpu:2", "cpu:0:1"),
    *(
        "",
        ":",
        ":0",
        "cpu:",
        "cuda:x",
        "cuda:1x",
        "cuda: 1",
        " cpu",
        "cpu ",
        "CPU",
        "gpu",
        "cpucpu",
    ),
    *("cuda:-1", "cuda:+1", "cuda:1.0", "cpu\n", "cuda:1\n", "cudacpu:1", "cp", "cpux:1", "::"),
)
_PROGRAM = r"""
#include <regex>
#include <cstdio>
int main(int count, char** devices) {
  for (int i = 1; i < count; ++i) {
    const std::string device_str = devices[i];
    std::regex re("(cpu|cuda|xpu|mps)(:([0-9]+))?");
    std::smatch sm;
    const bool matched = std::regex_match(device_str, sm, re);
    std::printf("%d", matched);
    if (matched)
      std::printf(" [%s] [%s] %d", sm[1].str().c_str(), sm[3].str().c_str(), bool(sm[3].matched));
    std::printf("\n");
  }
}
"""


def answers(folder: Path, *flags: str) -> list[str]:
    source, program = folder / "devices.cpp", folder / "devices"
    source.write_text(_PROGRAM)
    command = [cxx_command(), "-std=c++20", *flags, str(source), "-o", str(program)]
    subprocess.run(command, check=True, timeout=300)
    output = subprocess.run([program, *_DEVICES], capture_output=True, text=True, check=True)
    return output.stdout.splitlines()


def test_devices_are_taken_apart_as_by_the_standard_library(tmp_path: Path) -> None:
    usual = answers(tmp_path)
    assert len(usual) == len(_DEVICES)
    assert {line[0] for line in usual} == {"0", "1"}
    assert answers(tmp_path, f"-I{_HEADERS}") == usual


def test_it_is_used_with_the_torch_that_is_installed() -> None:
    assert lean_header_flags(include_paths()) == f"-I{_HEADERS}"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("xpu|mps", "xpu|mps|mtia"),
        ("std::smatch sm;", "std::smatch sm, other;"),
        ("", "inline bool is_name(const std::string& x) { return std::regex_search(x, names); }"),
    ],
)
def test_another_use_of_regular_expressions_gets_the_real_ones(
    tmp_path: Path, old: str, new: str
) -> None:
    folder = tmp_path / "torch/csrc/inductor/aoti_runtime"
    folder.mkdir(parents=True)
    lines = "\n".join(sorted(lean_headers._EXPECTED))
    (folder / "model_base.h").write_text(lines)
    assert lean_header_flags([str(tmp_path)])
    (folder / "model_base.h").write_text(lines.replace(old, new) if old else f"{lines}\n{new}\n")
    assert lean_header_flags([str(tmp_path)]) == ""


def test_without_headers_nothing_is_promised(tmp_path: Path) -> None:
    assert lean_header_flags([str(tmp_path)]) == ""


def test_an_engine_has_no_library_of_regular_expressions_in_it(small: TinyArtifact) -> None:
    engines = sorted(small.artifact.glob("targets/*/model.so"))
    assert engines
    assert [path for path in engines if b"regex_traits" in path.read_bytes()] == []
