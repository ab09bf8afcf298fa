"""Keeps docs/configuration.md true; the prose of the page is its own.

Its tables come from the option dataclasses, what its examples give from the parser.
`python tests/support/configuration_page.py` brings the page up to date; a test says when it is not.
"""

import re
import shlex
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.server.cli import typed_options
from infinity_v3.server.config import TOPICS, Configuration, all_options
from infinity_v3.server.config_merge import load_configuration
from infinity_v3.server.config_report import changed_lines, shown_default
from infinity_v3.server.option import Option
from infinity_v3.server.option_types import ChoiceType

PAGE = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"
FILE_NAME = "serve.toml"
BEGIN = "<!-- The tables are written by `make docs`. -->\n"
END = "<!-- End of the tables. -->\n"
EXAMPLE = re.compile(
    r"(?:```toml\n(?P<toml>.*?)```\n\n)?```sh\n(?P<command>.*?)\n```\n\n```text\n(?P<outcome>.*?)```",
    re.DOTALL,
)


@dataclass(frozen=True, kw_only=True)
class Example:
    """A file, if any, and a command, which starts with its variables as in a shell."""

    command: str
    toml: str = ""

    def load(self) -> Configuration:
        """Put the sources through the parser."""
        words = shlex.split(self.command.replace("\\\n", " "))
        start = words.index("infinity_v3")
        env = dict(word.split("=", 1) for word in words[:start])
        flags = dict(typed_options(words[start + 1 :]) or {})
        with tempfile.NamedTemporaryFile("w", suffix=".toml", encoding="utf-8") as file:
            file.write(self.toml)
            file.flush()
            if flags.get("config") == (FILE_NAME,):
                flags["config"] = [file.name]
            return load_configuration(flags, env)

    def outcome(self) -> str:
        """Lines of the start-up log, the file named as the reader did."""
        loaded = self.load()
        lines = [f"{line}\n" for line in changed_lines(loaded)]
        return "".join(lines).replace(str(loaded.serve.config), FILE_NAME)


def examples_of(page: str) -> list[Example]:
    """Every example of the page."""
    return [
        Example(command=found["command"], toml=found["toml"] or "")
        for found in EXAMPLE.finditer(page)
    ]


def updated(page: str) -> str:
    """The page with the tables and the outcomes as they should be."""
    head, rest = page.split(BEGIN)
    _, tail = rest.split(END)
    return head + BEGIN + "".join(map(_topic, TOPICS)) + "\n" + END + EXAMPLE.sub(_redone, tail)


def _redone(found: re.Match[str]) -> str:
    example = Example(command=found["command"], toml=found["toml"] or "")
    start = found.start("outcome") - found.start()
    return f"{found[0][:start]}{example.outcome()}```"


def _topic(topic: str) -> str:
    options = [option for option in all_options() if option.group == topic]
    return "\n".join(
        [
            f"\n### {topic}\n",
            f"{TOPICS[topic]}\n",
            "| flag | M | environment | TOML key | type | default | meaning and trade-off |",
            "|---|---|---|---|---|---|---|",
            *map(_row, options),
            "",
        ]
    )


def _row(option: Option) -> str:
    cells = (cell.replace("|", "\\|") for cell in _cells(option))
    return f"| {' | '.join(cells)} |"


def _cells(option: Option) -> Iterator[str]:
    yield f"{'`-p`, ' if option.name == 'port' else ''}`--{option.name}`"
    yield "M" if option.is_per_model else ""
    yield f"`{option.env_name}`"
    yield f"`{option.name}`" if option.in_file else "none"
    yield _type(option)
    default = shown_default(option)
    yield default if default == option.default_note else f"`{default}`"
    yield option.help_text


def _type(option: Option) -> str:
    kind = option.value_type
    words = kind.choices if isinstance(kind, ChoiceType) else kind.metavar.strip("[]").split("|")
    named = [word if word.isupper() or "." in word else f"`{word}`" for word in words]
    if option.is_optional:
        named.append("`none`")
    return ", ".join(named) + (", repeatable" if option.is_repeatable else "")


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
