"""The pages for people, as replies. Knows nothing of what they show."""

from infinity_v3.server.exchange import Reply

# Whatever a page shows, it can load nothing, send nothing elsewhere and be framed by nobody.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def page(name: str) -> Reply:
    """A page of `static/`."""
    from importlib.resources import files

    return Reply(
        body=files("infinity_v3.server").joinpath("static", name).read_bytes(),
        content_type="text/html; charset=utf-8",
        headers=(
            ("content-security-policy", _POLICY),
            ("referrer-policy", "no-referrer"),
            ("x-content-type-options", "nosniff"),
        ),
    )
