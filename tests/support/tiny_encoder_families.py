"""The tiny encoders. Owns their configuration facts; knows nothing of files or of weights."""

from tiny_family import WIDE, Feature, Published, TinyFamily, theta, two_thetas

_TYPES = Feature(name="token-types", inputs="no-token-types")
_POSITIONS = Feature(name="positions", zero="position_embeddings")
_OFFSET = Feature(name="position-offset", inputs="positions-from-zero")
_ROPE = Feature(name="rope-theta", config=theta(50.0))
_LOCAL_ROPE = Feature(name="local-rope-theta", config=two_thetas(50.0, 160000.0))

_NEW_CONFIG = {
    "rope_theta": 20000.0,
    "rope_scaling": {"factor": 2.0, "type": "ntk"},
    "position_embedding_type": "rope",
    "layer_norm_type": "layer_norm",
    "logn_attention_scale": False,
    "logn_attention_clip1": False,
    "pack_qkv": True,
    "unpad_inputs": False,
    "use_memory_efficient_attention": False,
}
# NTK scaling by s of base b over a head of width d is transformers' linear scaling by s^(2/d) of
# base b * s; with heads of width 8 and a factor of 2:
_NTK_AS_LINEAR = {
    "rope_type": "linear",
    "rope_theta": 20000.0 * 2.0,
    "factor": 2.0 ** (2 / 8),
}

ENCODERS = (
    TinyFamily(
        name="bert",
        model_type="bert",
        tokenizer="bert",
        config={"type_vocab_size": 2},
        features=(_TYPES, _POSITIONS),
    ),
    TinyFamily(
        name="distilbert", model_type="distilbert", tokenizer="distilbert", features=(_POSITIONS,)
    ),
    *(
        TinyFamily(
            name=name,
            model_type=name,
            tokenizer=name,
            config={"type_vocab_size": 1},
            features=(_POSITIONS, _OFFSET),
            max_positions=514,
        )
        for name in ("roberta", "xlm-roberta", "camembert")
    ),
    TinyFamily(
        name="mpnet",
        model_type="mpnet",
        tokenizer="mpnet",
        features=(
            Feature(name="relative-bias", zero="relative_attention_bias"),
            _POSITIONS,
            _OFFSET,
        ),
        max_positions=514,
    ),
    TinyFamily(
        name="deberta-v2",
        model_type="deberta-v2",
        tokenizer="deberta",
        config={
            "relative_attention": True,
            "position_buckets": 16,
            "max_relative_positions": -1,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "pos_att_type": "p2c|c2p",
            "position_biased_input": False,
            "type_vocab_size": 0,
            "pooler_hidden_act": "gelu",
            "legacy": False,
        },
        features=(
            Feature(name="relative-attention", config={"relative_attention": False}),
            Feature(name="content-to-position", config={"pos_att_type": ["p2c"]}),
            Feature(name="position-to-content", config={"pos_att_type": ["c2p"]}),
            Feature(name="bucket-scale", config={"max_relative_positions": 40}),
            Feature(name="norm-of-positions", config={"norm_rel_ebd": "none"}),
        ),
        pooling="cls",
    ),
    TinyFamily(
        name="deberta-v2-conv",
        model_type="deberta-v2",
        tokenizer="deberta",
        config={
            "relative_attention": True,
            "position_buckets": -1,
            "max_relative_positions": 20,
            "norm_rel_ebd": "none",
            "share_att_key": False,
            "pos_att_type": ["c2p", "p2c"],
            "position_biased_input": True,
            "type_vocab_size": 2,
            "conv_kernel_size": 3,
            "conv_act": "gelu",
        },
        features=(
            Feature(name="relative-attention", config={"relative_attention": False}),
            Feature(name="content-to-position", config={"pos_att_type": ["p2c"]}),
            Feature(name="position-to-content", config={"pos_att_type": ["c2p"]}),
            Feature(name="convolution", config={"conv_kernel_size": 0}),
            _TYPES,
            _POSITIONS,
        ),
        pooling="cls",
    ),
    TinyFamily(
        name="modernbert",
        model_type="modernbert",
        hidden_size=WIDE,
        tokenizer="modernbert",
        config={
            "local_attention": 16,
            "global_attn_every_n_layers": 3,
            **two_thetas(10000.0, 160000.0),
        },
        features=(
            Feature(name="window", config={"local_attention": 1024}),
            Feature(name="global-layers", config={"layer_types": ["sliding_attention"] * 4}),
            _LOCAL_ROPE,
        ),
        num_layers=4,
        pooling="cls",
    ),
    *(
        TinyFamily(
            name=name,
            model_type="ultrabert",
            hidden_size=WIDE,
            tokenizer="ultrabert",
            config={
                "sliding_window": 6,
                "num_key_value_heads": 2,
                "prediction_head_size": 24,
                "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
                **two_thetas(10000.0, 160000.0),
            },
            features=features,
            num_layers=3,
            published=published,
        )
        for name, published, features in (
            (
                "ultrabert",
                Published(),
                (
                    Feature(name="window", config={"sliding_window": 512}),
                    Feature(
                        name="global-layers", config={"layer_types": ["sliding_attention"] * 3}
                    ),
                    _LOCAL_ROPE,
                ),
            ),
            (
                "ultrabert-windows",
                Published(
                    config={
                        "attention_windows": [6, 6, None],
                        "rope_theta": [10000.0, 10000.0, 160000.0],
                    },
                    drop=("sliding_window", "layer_types", "rope_parameters"),
                ),
                (
                    Feature(name="window", config={"attention_windows": [512, 512, None]}),
                    Feature(name="global-layers", config={"attention_windows": [6, 6, 6]}),
                    Feature(name="local-rope-theta", config={"rope_theta": [50.0, 50.0, 160000.0]}),
                ),
            ),
        )
    ),
    TinyFamily(
        name="eurobert",
        model_type="eurobert",
        hidden_size=WIDE,
        tokenizer="eurobert",
        config={"num_key_value_heads": 2, **theta(250000.0)},
        features=(_ROPE,),
    ),
    TinyFamily(
        name="nomic_bert",
        model_type="nomic_bert",
        tokenizer="bert",
        config={"type_vocab_size": 2, **theta(1000.0)},
        features=(_TYPES, _ROPE),
    ),
    TinyFamily(
        name="gte",
        model_type="gte",
        tokenizer="xlm-roberta",
        config={"type_vocab_size": 1, **theta(160000.0)},
        features=(_ROPE,),
        pooling="cls",
    ),
    TinyFamily(
        name="new",
        model_type="gte",
        tokenizer="bert",
        config={"type_vocab_size": 0, "rope_parameters": _NTK_AS_LINEAR},
        features=(Feature(name="rope-scaling", config=theta(20000.0)), _ROPE),
        pooling="cls",
        published=Published(
            model_type="new",
            prefix="New",
            config=_NEW_CONFIG,
            drop=("rope_parameters",),
            prefixes=(("gte.", "new."), ("lm_head.layer_norm.", "lm_head.norm.")),
        ),
    ),
    TinyFamily(
        name="jina_embeddings_v3",
        model_type="jina_embeddings_v3",
        tokenizer="xlm-roberta",
        config={"type_vocab_size": 1, **theta(20000.0)},
        features=(_ROPE,),
    ),
)
