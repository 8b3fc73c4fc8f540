"""Channels of a Llama in another order: the same function, and other neighbours."""


def shuffle(model, seed: int = 13) -> None:
    """Reorder the channels of `model` in place; it computes what it computed before.

    Hidden channels, those between gate and down, and those within a value head change
    places in every weight that names them. A row keeps its weights, and a group of 32
    neighbours gets others.
    """
    import torch

    draw = torch.Generator().manual_seed(seed)
    body, config = model.model, model.config
    hidden = torch.randperm(config.hidden_size, generator=draw)
    tables = {id(m): m for m in (body.embed_tokens, model.lm_head)}
    if model.lm_head.weight is body.embed_tokens.weight:
        tables.popitem()
    for table in tables.values():
        _take(table, columns=hidden)
    _take(body.norm, rows=hidden)
    for block in body.layers:
        _shuffle_block(block, hidden, config, draw)


def _shuffle_block(block, hidden, config, draw) -> None:
    import torch

    attention, mlp = block.self_attn, block.mlp
    for norm in (block.input_layernorm, block.post_attention_layernorm):
        _take(norm, rows=hidden)
    width = attention.head_dim
    order = torch.randperm(width, generator=draw)
    value, out = (
        torch.cat([i * width + order for i in range(heads)])
        for heads in (config.num_key_value_heads, config.num_attention_heads)
    )
    _take(attention.q_proj, columns=hidden)
    _take(attention.k_proj, columns=hidden)
    _take(attention.v_proj, rows=value, columns=hidden)
    _take(attention.o_proj, rows=hidden, columns=out)
    between = torch.randperm(config.intermediate_size, generator=draw)
    _take(mlp.gate_proj, rows=between, columns=hidden)
    _take(mlp.up_proj, rows=between, columns=hidden)
    _take(mlp.down_proj, rows=hidden, columns=between)


def _take(module, rows=None, columns=None) -> None:
    weight = module.weight.data
    weight = weight if rows is None else weight[rows]
    module.weight.data = weight if columns is None else weight[:, columns].contiguous()
