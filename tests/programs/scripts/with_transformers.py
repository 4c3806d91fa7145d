"""transformers on synthetic data, models from configurations: with_transformers.py KIND."""

import sys

import counters  # noqa: F401
import torch
import transformers
from torch.utils.data import Dataset
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer, TrainingArguments

WORDS = 1000


class Data(Dataset):
    def __init__(self, make, count=64):
        self.items = [make() for _ in range(count)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, place):
        return self.items[place]


def text(length=64):
    ids = torch.randint(3, WORDS, (length,))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


def arguments(kind=TrainingArguments, steps=4, **more):
    return kind(output_dir="out", max_steps=steps, per_device_train_batch_size=4, report_to=[], logging_steps=1, save_strategy="no", **more)


def small(kind, **more):
    sizes = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": WORDS}
    return getattr(transformers, kind + "Config")(**{**sizes, **more})


def gpt2(**more):
    config = transformers.GPT2Config(vocab_size=WORDS, n_embd=128, n_layer=2, n_head=4, n_positions=128)
    trainer = Trainer(transformers.GPT2LMHeadModel(config), arguments(bf16=True, **more), train_dataset=Data(text))
    trainer.train()
    return trainer


def bert():
    def make():
        return {**text(), "labels": torch.randint(0, 3, ())}

    def metrics(of):
        return {"right": float((of.predictions.argmax(-1) == of.label_ids).mean())}

    model = transformers.BertForSequenceClassification(small("Bert", num_labels=3))
    Trainer(
        model, arguments(fp16=True, eval_strategy="steps", eval_steps=2), train_dataset=Data(make), eval_dataset=Data(make, 16),
        compute_metrics=metrics,
    ).train()  # fmt: skip


def llama():
    model = transformers.LlamaForCausalLM(small("Llama", num_key_value_heads=2))
    Trainer(model, arguments(gradient_checkpointing=True, gradient_accumulation_steps=2, bf16=True), train_dataset=Data(text)).train()


def reload():
    trainer = gpt2()
    trainer.save_model("saved")
    again = transformers.GPT2LMHeadModel.from_pretrained("saved").cuda()
    with torch.no_grad():
        again(torch.randint(0, WORDS, (1, 16), device="cuda"))


def compile():
    gpt2(torch_compile=True)


def t5():
    config = transformers.T5Config(vocab_size=WORDS, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, decoder_start_token_id=0)
    trainer = Seq2SeqTrainer(
        transformers.T5ForConditionalGeneration(config),
        arguments(Seq2SeqTrainingArguments, 2, predict_with_generate=True, generation_max_length=20, eval_strategy="steps", eval_steps=1),
        train_dataset=Data(text), eval_dataset=Data(text, 8),
    )  # fmt: skip
    trainer.train()


def loop(model, **batch):
    model = model.cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    batch = {name: value.cuda() for name, value in batch.items()}
    for _ in range(3):
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def mixtral(how="eager"):
    config = small("Mixtral", num_local_experts=8, num_key_value_heads=2)
    config._experts_implementation = how
    ids = torch.randint(0, WORDS, (4, 128))
    loop(transformers.MixtralForCausalLM(config), input_ids=ids, labels=ids)


def qwen2_vl():
    config = transformers.Qwen2VLConfig(
        text_config={
            "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "vocab_size": WORDS, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 6, 6]},
        },
        vision_config={"depth": 2, "embed_dim": 64, "hidden_size": 128, "num_heads": 4, "mlp_ratio": 2},
        image_token_id=5, video_token_id=6, vision_start_token_id=7, vision_end_token_id=8,
    )  # fmt: skip
    grid = torch.tensor([[1, 8, 8]])
    ids = torch.randint(10, WORDS, (1, 40))
    ids[0, 3], ids[0, 4:20], ids[0, 20] = 7, 5, 8
    model = transformers.Qwen2VLForConditionalGeneration(config)
    images = {"pixel_values": torch.randn(64, 3 * 2 * 14 * 14), "image_grid_thw": grid, "mm_token_type_ids": (ids == 5).long()}
    loop(model, input_ids=ids, labels=ids, **images)


def vit():
    config = small("ViT", image_size=64, patch_size=8, num_labels=10)
    loop(transformers.ViTForImageClassification(config), pixel_values=torch.randn(8, 3, 64, 64), labels=torch.randint(0, 10, (8,)))


def whisper():
    config = transformers.WhisperConfig(
        vocab_size=WORDS, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=128, decoder_ffn_dim=128, max_source_positions=100, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    loop(
        transformers.WhisperForConditionalGeneration(config),
        input_features=torch.randn(2, 80, 200),
        labels=torch.randint(3, WORDS, (2, 20)),
    )


def detr():
    backbone = transformers.ResNetConfig(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], out_features=["stage2"])
    config = transformers.DetrConfig(
        use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, backbone_config=backbone, d_model=64, encoder_layers=1,
        decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, num_queries=20,
        num_labels=5,
    )  # fmt: skip
    model = transformers.DetrForObjectDetection(config).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    labels = [{"class_labels": torch.tensor([1, 2]).cuda(), "boxes": torch.tensor([[0.5, 0.5, 0.2, 0.2], [0.4, 0.4, 0.3, 0.1]]).cuda()}] * 2
    for _ in range(3):
        model(pixel_values=torch.randn(2, 3, 128, 128, device="cuda"), labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def generate():
    model = transformers.LlamaForCausalLM(small("Llama", num_key_value_heads=2)).cuda().half()
    forwards = []
    model.register_forward_hook(lambda *_: forwards.append(1))
    ids = torch.randint(3, WORDS, (2, 32), device="cuda")
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=16, do_sample=True)
    assert out.shape == (2, 48) and len(forwards) == 16, (out.shape, len(forwards))


kind = sys.argv[1]
if kind == "mixtral-grouped":
    mixtral("grouped_mm")
else:
    globals()[kind.replace("-", "_")]()
