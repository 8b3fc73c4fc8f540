"""Is the decoder right? The same weights in code that shares nothing with it."""

from gpulab_utils.decoder import EPS, LINEARS, Decoder


def reference(decoder: Decoder, written: dict):
    """`transformers`' LlamaForCausalLM in fp32, each layer holding `written`.

    `written` maps each of the seven linears to its weights [out, in]; tables and norms are
    the decoder's own. Raises `KeyError` where a linear is missing.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    shape, first = decoder.shape, decoder.blocks[0]
    config = LlamaConfig(
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=len(decoder.blocks),
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        vocab_size=shape.vocab,
        rms_norm_eps=EPS,
        tie_word_embeddings=False,
    )
    place = dict.fromkeys(LINEARS[:4], "self_attn") | dict.fromkeys(LINEARS[4:], "mlp")
    layer = {f"{place[n]}.{n}_proj": written[n] for n in LINEARS}
    layer["input_layernorm"] = first.norm_attention
    layer["post_attention_layernorm"] = first.norm_mlp
    state = {
        "model.embed_tokens": decoder.embedding.float(),
        "lm_head": decoder.head.float(),
    }
    state["model.norm"] = decoder.norm.float()
    for i in range(len(decoder.blocks)):
        state |= {f"model.layers.{i}.{name}": w for name, w in layer.items()}
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    weights = {f"{name}.weight": w.float() for name, w in state.items()}
    model.load_state_dict(weights, assign=True)
    rotary = model.model.rotary_emb  # its angles are no part of the state
    model.model.rotary_emb = type(rotary)(config).to(decoder.norm.device)
    return model.eval()
