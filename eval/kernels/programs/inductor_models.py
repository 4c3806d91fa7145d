"""Models of torchvision, timm and transformers, one or two layers of each: forward and backward of `torch.compile` under autocast."""

import functools

import one_step
import torch

TOKENS, IMAGE = 64, 64

# {name in timm: what makes it shallow}
TIMM = {
    "vit_tiny_patch16_224": {"depth": 1, "img_size": IMAGE},
    "deit3_small_patch16_224": {"depth": 1, "img_size": IMAGE},
    "beit_base_patch16_224": {"depth": 1, "img_size": IMAGE},
    "eva02_tiny_patch14_224": {"depth": 1, "img_size": 56},
    "cait_xxs24_224": {"depth": 1, "img_size": IMAGE},
    "xcit_nano_12_p16_224": {"depth": 1, "img_size": IMAGE},
    "convnext_atto": {"depths": (1, 1, 1, 1)},
    "resnet10t": {},
}
# {its configuration in transformers: (sizes, the class of its models)}
SMALL = {"hidden_size": 256, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 512, "vocab_size": 1024}
GROUPED = SMALL | {"num_key_value_heads": 2}
GPT2 = {"n_embd": 256, "n_layer": 1, "n_head": 4, "vocab_size": 1024, "n_positions": 128}
EXPERTS = GROUPED | {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 256}
CAUSAL, MASKED, SEQUENCE = "AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoModelForSeq2SeqLM"
STARTS = {"pad_token_id": 0, "decoder_start_token_id": 0}
TRANSFORMERS = {
    "GPT2Config": (GPT2, CAUSAL),
    "GPTNeoXConfig": (SMALL, CAUSAL),
    "GPTJConfig": (GPT2 | {"rotary_dim": 32}, CAUSAL),
    "OPTConfig": (SMALL | {"ffn_dim": 512, "word_embed_proj_dim": 256}, CAUSAL),
    "BloomConfig": ({"hidden_size": 256, "n_layer": 1, "n_head": 4, "vocab_size": 1024}, CAUSAL),
    "FalconConfig": (SMALL, CAUSAL),
    "LlamaConfig": (GROUPED, CAUSAL),
    "MistralConfig": (GROUPED, CAUSAL),
    "Qwen2Config": (GROUPED, CAUSAL),
    "Qwen3Config": (GROUPED | {"head_dim": 64}, CAUSAL),
    "GemmaConfig": (GROUPED | {"head_dim": 64}, CAUSAL),
    "Gemma2Config": (GROUPED | {"head_dim": 64}, CAUSAL),
    "Gemma3TextConfig": (GROUPED | {"head_dim": 64}, CAUSAL),
    "PhiConfig": (SMALL, CAUSAL),
    "Phi3Config": (GROUPED | {"pad_token_id": 0}, CAUSAL),
    "StableLmConfig": (GROUPED, CAUSAL),
    "Starcoder2Config": (GROUPED, CAUSAL),
    "Olmo2Config": (GROUPED, CAUSAL),
    "CohereConfig": (GROUPED, CAUSAL),
    "GraniteConfig": (GROUPED, CAUSAL),
    "GlmConfig": (GROUPED | {"head_dim": 64, "pad_token_id": 0}, CAUSAL),
    "MixtralConfig": (EXPERTS, CAUSAL),
    "MambaConfig": ({"hidden_size": 128, "num_hidden_layers": 1, "vocab_size": 1024, "state_size": 8}, CAUSAL),
    "BertConfig": (SMALL, MASKED),
    "RobertaConfig": (SMALL | {"max_position_embeddings": 130}, MASKED),
    "DistilBertConfig": ({"dim": 256, "n_layers": 1, "n_heads": 4, "hidden_dim": 512, "vocab_size": 1024}, MASKED),
    "ElectraConfig": (SMALL | {"embedding_size": 128}, MASKED),
    "AlbertConfig": (SMALL | {"embedding_size": 128}, MASKED),
    "DebertaV2Config": (SMALL | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}, MASKED),
    "ModernBertConfig": (SMALL | {"pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2}, MASKED),
    "MPNetConfig": (SMALL, MASKED),
    "T5Config": ({"d_model": 256, "d_kv": 64, "d_ff": 512, "num_layers": 1, "num_heads": 4, "vocab_size": 1024} | STARTS, SEQUENCE),
    "BartConfig": (
        {"d_model": 256, "vocab_size": 1024, "max_position_embeddings": 128}
        | {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("layers", 1), ("attention_heads", 4), ("ffn_dim", 512))},
        SEQUENCE,
    ),
}
TORCHVISION = ("alexnet", "resnet18", "squeezenet1_1")


def step(model, loss_of, *inputs, **named):
    model = torch.compile(model.cuda().train(), dynamic=False)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = loss_of(model(*inputs, **named))
    loss.backward()


def on_images(model, size=IMAGE):
    labels = torch.zeros(4, dtype=torch.long, device="cuda")
    step(model, lambda out: torch.nn.functional.cross_entropy(out.float(), labels), torch.randn(4, 3, size, size, device="cuda"))


def torchvision_model(name):
    import torchvision

    on_images(getattr(torchvision.models, name)(num_classes=10))


def timm_model(name):
    import timm

    on_images(timm.create_model(name, num_classes=10, **TIMM[name]), TIMM[name].get("img_size", IMAGE))


def transformers_model(name):
    import transformers

    sizes, kind = TRANSFORMERS[name]
    config = getattr(transformers, name)(**sizes)
    ids = torch.randint(3, 1000, (2, TOKENS)).cuda()
    caching = {} if kind == MASKED else {"use_cache": False}
    step(getattr(transformers, kind).from_config(config), lambda out: out.loss, input_ids=ids, labels=ids, **caching)


CASES = {
    **{name: functools.partial(torchvision_model, name) for name in TORCHVISION},
    **{name: functools.partial(timm_model, name) for name in TIMM},
    **{name: functools.partial(transformers_model, name) for name in TRANSFORMERS},
}

if __name__ == "__main__":
    one_step.run(CASES)
