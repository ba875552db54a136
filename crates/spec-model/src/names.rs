//! What files call the tensors, by their role.

/// Names without `.weight` and `.bias`. Those of layers follow the layer's number and a dot.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) embedding: &'static str,
    pub(crate) positions: &'static str,
    pub(crate) output_norm: &'static str,
    pub(crate) output: &'static str,
    /// What stands before a layer's number.
    pub(crate) layers: &'static str,
    pub(crate) attn_norm: &'static str,
    pub(crate) q: &'static str,
    pub(crate) k: &'static str,
    pub(crate) v: &'static str,
    pub(crate) qkv: &'static str,
    pub(crate) q_norm: &'static str,
    pub(crate) k_norm: &'static str,
    pub(crate) attn_output: &'static str,
    pub(crate) post_attn_norm: &'static str,
    pub(crate) ffn_norm: &'static str,
    pub(crate) gate: &'static str,
    pub(crate) up: &'static str,
    pub(crate) down: &'static str,
    pub(crate) post_ffn_norm: &'static str,
}

/// GGUF's, whatever the architecture.
pub(crate) static GGUF: Names = Names {
    embedding: "token_embd",
    positions: "position_embd",
    output_norm: "output_norm",
    output: "output",
    layers: "blk.",
    attn_norm: "attn_norm",
    q: "attn_q",
    k: "attn_k",
    v: "attn_v",
    qkv: "attn_qkv",
    q_norm: "attn_q_norm",
    k_norm: "attn_k_norm",
    attn_output: "attn_output",
    post_attn_norm: "post_attention_norm",
    ffn_norm: "ffn_norm",
    gate: "ffn_gate",
    up: "ffn_up",
    down: "ffn_down",
    post_ffn_norm: "post_ffw_norm",
};

/// Those of safetensors files without the prefix of the decoder (`model.` and others): see [`PREFIXES`].
pub(crate) static LLAMA: Names = Names {
    embedding: "embed_tokens",
    positions: "",
    output_norm: "norm",
    output: "lm_head",
    layers: "layers.",
    attn_norm: "input_layernorm",
    q: "self_attn.q_proj",
    k: "self_attn.k_proj",
    v: "self_attn.v_proj",
    qkv: "",
    q_norm: "self_attn.q_norm",
    k_norm: "self_attn.k_norm",
    attn_output: "self_attn.o_proj",
    post_attn_norm: "",
    ffn_norm: "post_attention_layernorm",
    gate: "mlp.gate_proj",
    up: "mlp.up_proj",
    down: "mlp.down_proj",
    post_ffn_norm: "",
};

pub(crate) static GEMMA3: Names = Names {
    post_attn_norm: "post_attention_layernorm",
    ffn_norm: "pre_feedforward_layernorm",
    post_ffn_norm: "post_feedforward_layernorm",
    ..LLAMA
};

pub(crate) static GPT2: Names = Names {
    embedding: "wte",
    positions: "wpe",
    output_norm: "ln_f",
    output: "lm_head",
    layers: "h.",
    attn_norm: "ln_1",
    q: "",
    k: "",
    v: "",
    qkv: "attn.c_attn",
    q_norm: "",
    k_norm: "",
    attn_output: "attn.c_proj",
    post_attn_norm: "",
    ffn_norm: "ln_2",
    gate: "",
    up: "mlp.c_fc",
    down: "mlp.c_proj",
    post_ffn_norm: "",
};

/// What may stand before a decoder's names in safetensors files: nothing when the bare decoder was saved, and the parts
/// of models that also see.
pub(crate) static PREFIXES: [&str; 6] =
    ["model.", "", "transformer.", "language_model.model.", "model.language_model.", "language_model."];

/// The same before the head's name.
pub(crate) static OUTPUT_PREFIXES: [&str; 3] = ["", "language_model.", "model."];

/// Endings of tensors that older files carry and that follow from the configuration: masks and rotary frequencies.
pub(crate) static DERIVED: [&str; 3] = [".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias"];

/// Beginnings of what models that also see carry beside the decoder.
pub(crate) static OTHER_PARTS: [&str; 4] =
    ["vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector."];
