"""The processes that work for the server: one compiles, the others ask the registry.

Knows nothing of when they are needed.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.user_cache import user_cache, user_data
from infinity_v3.server.compile_child import CompileChild
from infinity_v3.server.config import ServeConfig
from infinity_v3.server.registry_child import RegistryAccess, RegistryChild
from infinity_v3.server.tool import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Children:
    """What may be started.

    Attributes:
        registry: None = this host has no place for what would be pulled.
        has_registry: there is a registry to ask about a name without a mark.
    """

    compiler: CompileChild
    registry: RegistryChild | None = None
    has_registry: bool = False


def artifact_cache(config: ServeConfig) -> Path | None:
    """Where artifacts are kept; None = the user has no home directory."""
    return config.artifact_cache or user_cache(os.environ)


def make_children(config: ServeConfig, tool: Tool) -> Children:
    """The children that the options describe; starts none of them."""
    cache = artifact_cache(config)
    registry = None
    if cache is not None:
        access = RegistryAccess(
            location=config.registry,
            cache=cache,
            key=config.require_signature,
            watch_interval_s=config.watch_interval_s,
            hub_cache=config.huggingface_hub_cache,
        )
        registry = RegistryChild(access, tool)
    return Children(
        compiler=CompileChild(config.huggingface_hub_cache, tool),
        registry=registry,
        has_registry=config.registry is not None or _has_default_registry(),
    )


def _has_default_registry() -> bool:
    data = user_data(os.environ)
    return data is not None and (data / "registry" / paths.MARKER).exists()
