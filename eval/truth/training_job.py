#!/usr/bin/env python3
"""One training job on random data, as a plain program: what measure_training.py measures on a card and gpucast runs without one.

    python training_job.py '{"model": "torchvision:resnet50", "batch": 64, "precision": "default", "optimizer": "SGD"}' [--steps 5]

A job's fields:
- model: torchvision:NAME, timm:NAME, transformers:NAME (a key of TRANSFORMERS), lstm, mlp:WIDTH,... or cnn:CHANNELS,...
- batch; length (tokens) or size (pixels)
- precision: default (PyTorch's: TF32 in cuDNN only), fp32, tf32, amp_bf16, amp_fp16, bf16 (weights)
- optimizer: SGD, Adam, AdamW, AdamW fused
- channels_last, checkpointing, parts (micro-batches a step), lora (rank), items (loss.item() twice a step)
"""

import argparse
import json

LLAMA = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8}
TRANSFORMERS = {  # the model's class, its configuration's class and values
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {}),
    "gpt2-medium": ("GPT2LMHeadModel", "GPT2Config", {"n_embd": 1024, "n_layer": 24, "n_head": 16}),
    "gpt2-large": ("GPT2LMHeadModel", "GPT2Config", {"n_embd": 1280, "n_layer": 36, "n_head": 20}),
    "bert-base": ("BertForMaskedLM", "BertConfig", {}),
    "bert-large": ("BertForMaskedLM", "BertConfig", {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}),
    "deberta-base": ("DebertaV2ForMaskedLM", "DebertaV2Config", {"vocab_size": 128100, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072, "relative_attention": True, "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True, "pos_att_type": ["p2c", "c2p"]}),
    "t5-base": ("T5ForConditionalGeneration", "T5Config", {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12, "decoder_start_token_id": 0}),
    "llama-1b": ("LlamaForCausalLM", "LlamaConfig", {**LLAMA, "vocab_size": 128256, "max_position_embeddings": 8192, "tie_word_embeddings": True}),
    "llama-3b": ("LlamaForCausalLM", "LlamaConfig", {**LLAMA, "vocab_size": 128256, "hidden_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 24, "tie_word_embeddings": True}),
    "qwen3-0.6b": ("Qwen3ForCausalLM", "Qwen3Config", {"vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": True}),
    "gemma3-1b": ("Gemma3ForCausalLM", "Gemma3TextConfig", {"vocab_size": 262144, "hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 26, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256, "sliding_window": 512}),
    "mixtral-small": ("MixtralForCausalLM", "MixtralConfig", {**LLAMA, "vocab_size": 32000, "hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 8, "num_attention_heads": 16, "num_local_experts": 8, "num_experts_per_tok": 2}),
    "whisper-small": ("WhisperForConditionalGeneration", "WhisperConfig", {"d_model": 768, "encoder_layers": 12, "decoder_layers": 12, "encoder_attention_heads": 12, "decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072, "decoder_start_token_id": 50258, "pad_token_id": 50257}),
    "wav2vec2-base": ("Wav2Vec2ForCTC", "Wav2Vec2Config", {"mask_time_prob": 0.0, "mask_feature_prob": 0.0, "layerdrop": 0.0, "ctc_zero_infinity": True}),
}  # fmt: skip


def made_on_card(job):
    """Whether the model is made there: on the host its random weights would take long."""
    return bool(job.get("lora")) or "llama" in job["model"]


def make_model(job):
    """(The model on the host or, where it is large, on the card; a function that makes the batch on the card.)"""
    import torch
    from torch import nn

    source, _, name = job["model"].partition(":")
    batch, length, size = job["batch"], job.get("length", 512), job.get("size", 224)
    integers = lambda high, *shape: torch.randint(high, shape, device="cuda")  # noqa: E731
    images = lambda: (torch.randn(batch, 3, size, size, device="cuda"), integers(1000, batch))  # noqa: E731
    if source == "torchvision":
        import torchvision

        if "deeplab" in name:
            model = torchvision.models.segmentation.__dict__[name](weights=None, weights_backbone=None, num_classes=21)
            return model, lambda: (torch.randn(batch, 3, size, size, device="cuda"), integers(21, batch, size, size))
        return torchvision.models.__dict__[name](), images
    if source == "timm":
        import timm

        model = timm.create_model(name)
        if job.get("checkpointing"):
            model.set_grad_checkpointing()
        return model, images
    if source == "transformers":
        import transformers

        model_class, config_class, values = TRANSFORMERS[name]
        config = getattr(transformers, config_class)(**values)
        config.use_cache = False
        with torch.device("cuda" if made_on_card(job) else "cpu"):
            model = getattr(transformers, model_class)(config)
        if job.get("checkpointing"):
            model.gradient_checkpointing_enable()
        if job.get("lora"):
            import peft

            model = peft.get_peft_model(model, peft.LoraConfig(r=job["lora"], target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]))

        def texts():
            if name.startswith("whisper"):
                return {"input_features": torch.randn(batch, 80, 3000, device="cuda"), "labels": integers(50257, batch, length)}
            if name.startswith("wav2vec2"):
                return {"input_values": torch.randn(batch, length, device="cuda"), "labels": torch.randint(1, 32, (batch, 100)).cuda()}
            ids = integers(config.vocab_size if name != "gemma3-1b" else 262144, batch, length)
            return {"input_ids": ids, "labels": ids}

        return model, texts
    if source == "lstm":

        class Lstm(nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.lstm, self.head = (
                    nn.Embedding(10000, 1024),
                    nn.LSTM(1024, 1024, 2, batch_first=True),
                    nn.Linear(1024, 10000),
                )

            def forward(self, x):
                return self.head(self.lstm(self.words(x))[0]).flatten(0, 1)

        return Lstm(), lambda: (integers(10000, batch, length), integers(10000, batch * length))
    widths = [int(word) for word in name.split(",")]
    layers = []
    if source == "mlp":  # as the random nets of GPUMemNet: ReLU after each layer but the last, softmax, cross entropy
        for inputs, outputs in zip(widths, widths[1:]):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        return nn.Sequential(*layers[:-1], nn.Softmax(1)), lambda: (
            torch.randn(batch, widths[0], device="cuda"),
            integers(widths[-1], batch),
        )
    for inputs, outputs in zip(widths, widths[1:]):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 500), nn.Softmax(1)]
    return nn.Sequential(*layers, *head), lambda: (torch.randn(batch, widths[0], size, size, device="cuda"), integers(500, batch))


def make_step(job):
    """A function that makes one optimizer step on one fixed batch."""
    import torch
    from torch import nn

    precision = job["precision"]
    if precision in ("fp32", "tf32"):
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.manual_seed(0)
    model, make_batch = make_model(job)
    layout = torch.channels_last if job.get("channels_last") else torch.preserve_format
    if precision == "bf16":
        model.to(torch.bfloat16)
    model.to("cuda", memory_format=layout).train()
    batch = make_batch()
    if job.get("channels_last"):
        batch = (batch[0].contiguous(memory_format=torch.channels_last), batch[1])
    words = job["optimizer"].split()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    options = {"SGD": {"lr": 1e-3, "momentum": 0.9}}.get(words[0], {"lr": 1e-4})
    optimizer = getattr(torch.optim, words[0])(trained, **options, **({"fused": True} if "fused" in words else {}))
    scaler = torch.amp.GradScaler("cuda", enabled=precision == "amp_fp16")
    amp = {"amp_bf16": torch.bfloat16, "amp_fp16": torch.float16}.get(precision)
    parts = job.get("parts", 1)

    def loss_of(begin, end):
        if isinstance(batch, dict):
            return model(**{name: value[begin:end] for name, value in batch.items()}).loss
        output = model(batch[0][begin:end])
        return nn.functional.cross_entropy(output["out"] if isinstance(output, dict) else output, batch[1][begin:end])

    def step():
        optimizer.zero_grad()
        for part in range(parts):
            with torch.autocast("cuda", amp, enabled=amp is not None):
                size = job["batch"]
                loss = loss_of(0, None) if parts == 1 else loss_of(part * size // parts, (part + 1) * size // parts) / parts
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if job.get("items"):
            loss.item(), loss.item()

    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", type=json.loads)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--batch", type=int, help="another batch than the job's")
    args = parser.parse_args()
    step = make_step({**args.job, **({"batch": args.batch} if args.batch else {})})
    for _ in range(args.steps):
        step()
    import torch

    torch.cuda.synchronize()
    print(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())


if __name__ == "__main__":
    main()
