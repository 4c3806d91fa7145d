"""Data sets, metrics and models with random weights for the examples of transformers and accelerate, which download theirs."""

import json
import random
from pathlib import Path

WORDS = ["one", "two", "three", "four", "five"]
SPECIAL = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "mask_token": "[MASK]"}

METRIC = '''"""Takes the place of a metric that is downloaded."""

import datasets
import evaluate


class Metric(evaluate.Metric):
    def _info(self):
        features = datasets.Features({{name: {feature} for name in ("predictions", "references")}})
        return evaluate.MetricInfo(description="", citation="", inputs_description="", features=features)

    def _compute(self, predictions, references):
        return {{{name!r}: sum(map(lambda a, b: a == b, predictions, references)) / len(predictions)}}
'''

INTEGER = 'datasets.Value("int32")'


def metric(folder: Path, feature=INTEGER):
    """A folder of a metric's name, where `evaluate.load` finds it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{folder.name}.py").write_text(METRIC.format(feature=feature, name=folder.name))


def sentence(seed, length=300):
    return " ".join(random.Random(seed).choices(WORDS, k=length))


def json_lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def texts(folder, count=160):
    for name in ("train", "validation"):
        json_lines(folder / f"{name}.json", ({"text": sentence(i)} for i in range(count)))


def pairs(folder, count=160):
    """Two sentences and a label a row."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("train", "validation"):
        rows = (f"{sentence(i, 30)},{sentence(-i, 30)},{i % 2}\n" for i in range(count))
        (folder / f"{name}.csv").write_text("sentence1,sentence2,label\n" + "".join(rows))


def glue(folder):
    """The task MRPC, as `load_dataset(folder, "mrpc")` reads it. The script's batch is 16."""
    for name, count in (("train", 32), ("validation", 32)):
        rows = ({"sentence1": sentence(i, 20), "sentence2": sentence(-i, 20), "label": i % 2, "idx": i} for i in range(count))
        json_lines(folder / f"mrpc/{name}.jsonl", rows)
    (folder / "README.md").write_text("---\nconfigs:\n- config_name: mrpc\n  data_dir: mrpc\n---\n")


def play(path):
    """Lines with each letter of the script's own prompt."""
    path.write_text("".join(f"O God, O God! {sentence(i, 20)}\n" for i in range(500)))


def answers(folder, count=120):
    """In the form of SQuAD."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("train", "validation"):
        rows = []
        for i in range(count):
            context = sentence(i)
            answer = {"text": [context.split()[0]], "answer_start": [0]}
            rows.append({"id": str(i), "title": "", "context": context, "question": sentence(-i, 8), "answers": answer})
        (folder / f"{name}.json").write_text(json.dumps({"data": rows}))


def boxed(folder, count=32):
    """Pictures with boxes, in the form of CPPE-5."""
    import datasets
    import numpy as np
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    classes = datasets.Sequence(datasets.ClassLabel(names=["Coverall", "Face_Shield", "Gloves", "Goggles", "Mask"]))
    numbers = datasets.Value("int64")
    objects = {
        "id": datasets.Sequence(numbers),
        "area": datasets.Sequence(numbers),
        "bbox": datasets.Sequence(datasets.Sequence(datasets.Value("float32"), length=4)),
        "category": classes,
    }
    features = datasets.Features({"image_id": numbers, "image": datasets.Image(), "width": numbers, "height": numbers, "objects": objects})
    pixels = np.random.default_rng(1).integers(0, 256, (count, 120, 160, 3), dtype=np.uint8)
    box = {"id": [0, 1], "area": [1200, 800], "bbox": [[10, 10, 40, 30], [60, 50, 40, 20]], "category": [1, 3]}
    for name, number in (("train", count), ("validation", 8), ("test", 8)):
        rows = {
            "image_id": list(range(number)),
            "image": [Image.fromarray(picture) for picture in pixels[:number]],
            "width": [160] * number,
            "height": [120] * number,
            "objects": [box] * number,
        }
        datasets.Dataset.from_dict(rows, features=features).to_parquet(str(folder / f"{name}.parquet"))


def _tokenizer(folder, **special):
    import tokenizers
    import transformers

    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=2000, special_tokens=list(SPECIAL.values()))
    made.train_from_iterator([" ".join(WORDS)], trainer)
    places = [(token, made.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=places
    )
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, **SPECIAL, **special).save_pretrained(folder)


def gpt2(folder):
    import transformers

    _tokenizer(folder, model_max_length=1024)
    config = transformers.GPT2Config(n_layer=4, n_embd=256, n_head=4, bos_token_id=1, eos_token_id=2)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)


def bert(folder):
    import transformers

    _tokenizer(folder, model_max_length=512)
    config = transformers.BertConfig(hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024)
    transformers.BertForMaskedLM(config).save_pretrained(folder)


def vit(folder):
    import transformers

    config = transformers.ViTConfig(hidden_size=192, num_hidden_layers=4, num_attention_heads=3, intermediate_size=768)
    transformers.ViTForImageClassification(config).save_pretrained(folder)
    transformers.ViTImageProcessor().save_pretrained(folder)


def detr(folder):
    import transformers

    backbone = transformers.ResNetConfig(
        hidden_sizes=[64, 128, 256, 512], depths=[1, 1, 1, 1], layer_type="basic", embedding_size=64, out_features=["stage4"]
    )
    config = transformers.DetrConfig(
        backbone_config=backbone, use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, encoder_layers=2, decoder_layers=2
    )
    transformers.DetrForObjectDetection(config).save_pretrained(folder)
    transformers.DetrImageProcessor().save_pretrained(folder)
