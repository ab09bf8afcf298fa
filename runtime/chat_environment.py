"""The Jinja environment of chat templates: what they may use, and what they must not touch.

A template is a program of the checkpoint's author, written for transformers; here it finds the
same names and rules. Knows no template and no conversation.
"""

import json
from collections.abc import Iterable
from datetime import datetime

from jinja2 import Template, nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

TEMPLATE_ERRORS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TemplateError,
    TypeError,
    ValueError,
)
"""What running a template can raise, but for lack of memory."""


def compile_template(source: str, *, has_clock: bool = True) -> Template:
    """Make a template runnable.

    Args:
        source: the template.
        has_clock: it may ask for the time, and so give another text each time.

    Raises:
        TemplateError: it is not written as Jinja has it.
    """
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    if has_clock:
        environment.globals["strftime_now"] = _strftime_now
    environment.globals["dict"] = _Dict()
    environment.globals["namespace"] = _Namespace
    return environment.from_string(source)


class _Generation(Extension):
    """The block around what an assistant says: shown as it is, in a scope of its own."""

    tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_show"), [], [], body).set_lineno(line)

    def _show(self, caller: Macro) -> str:
        return caller()


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON; Jinja's own filter would escape what HTML reads as markup."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: object) -> None:
    raise TemplateError(str(message))


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


class _Dict:
    """Makes dictionaries, without being their class."""

    def __call__(self, *values: object, **named: object) -> dict[str, object]:
        return dict(*values, **named)

    def fromkeys(self, keys: Iterable[object], value: object = None) -> dict[object, object]:
        return dict.fromkeys(keys, value)


class _Namespace(Namespace):
    """Variables that outlive a loop; names that could reach into Python are refused."""

    def __init__(self, /, *values: object, **named: object) -> None:
        attributes = dict(*values, **named)
        for name in attributes:
            _check_name(name)
        super().__init__(attributes)

    def __setitem__(self, name: str, value: object) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace takes no name that starts with an underscore: {name!r}")
