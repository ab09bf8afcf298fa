"""Numbers of config.json that rotation, attention and experts compute with.

Refuses those that no model can be computed with, by name. transformers reads them itself.
"""

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.model_specs.json_file import JsonObject, shown

_POSITIVE = ("layer_norm_eps", "query_pre_attn_scalar", "attn_logit_softcapping")
_ROPE_KEYS = ("rope_scaling", "rope_parameters")
_ROPE_TYPES = ("default", "linear", "yarn", "llama3")
_GTE_ROPE_TYPE = "ntk"
_CHOSEN_EXPERTS = ("num_experts_per_tok", "moe_top_k")
_MAX_EXPERTS = 10**9


def check_numbers(config: JsonObject) -> None:
    """Refuse numbers that no model can be computed with.

    Raises:
        UsageError: one is not in its range, or positions are scaled in a way that is not compiled.
    """
    for key in _POSITIVE:
        config.require_positive(key)
    for rope in _rope_sections(config):
        _check_rope(rope, is_gte=config.values.get("model_type") == "new")
    experts = count_experts(config)
    for key in _CHOSEN_EXPERTS if experts else ():
        config.integer(key, minimum=1, maximum=experts)


def count_experts(config: JsonObject) -> int:
    """Experts of a layer, 0 where layers have none; releases of transformers spell it two ways."""
    spellings = ("num_experts", "num_local_experts")
    counts = [config.integer(key, minimum=0, maximum=_MAX_EXPERTS) for key in spellings]
    return next((count for count in counts if count), 0)


def _rope_sections(config: JsonObject) -> list[JsonObject]:
    """The objects that scale positions: one for all layers, or one per kind of layer."""
    tops = [section for key in _ROPE_KEYS if (section := config.child(key))]
    inner = [
        section
        for top in tops
        for key, value in top.values.items()
        if isinstance(value, dict) and (section := top.child(key))
    ]
    return tops + inner


def _check_rope(rope: JsonObject, *, is_gte: bool) -> None:
    rope.require_positive("factor")
    key = "rope_type" if rope.has("rope_type") else "type"
    known = (*_ROPE_TYPES, _GTE_ROPE_TYPE) if is_gte else _ROPE_TYPES
    stated = rope.text(key)
    if stated is not None and stated not in known:
        raise UsageError(
            f"{rope.where(key)}: expected one of {', '.join(known)}, found {shown(stated)}, which "
            "this release does not compile; use a checkpoint that scales positions in one of them"
        )
