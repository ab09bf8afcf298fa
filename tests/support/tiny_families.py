"""The table of all tiny families, by the name of their recipe."""

from collections.abc import Mapping
from types import MappingProxyType

from tiny_decoder_families import DECODERS
from tiny_encoder_families import ENCODERS
from tiny_family import BIO_LABELS as BIO_LABELS
from tiny_family import CAUSAL_LM as CAUSAL_LM
from tiny_family import MASKED_LM as MASKED_LM
from tiny_family import SEQUENCE as SEQUENCE
from tiny_family import TOKEN as TOKEN
from tiny_family import Feature as Feature
from tiny_family import Published as Published
from tiny_family import TinyFamily as TinyFamily

TINY_FAMILIES: Mapping[str, TinyFamily] = MappingProxyType(
    {family.name: family for family in (*ENCODERS, *DECODERS)}
)
