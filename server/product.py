"""Name and version of the product as installed."""


def product_version() -> str:
    """Version of the installed distribution."""
    from importlib.metadata import version

    return version("infinity-v3")
