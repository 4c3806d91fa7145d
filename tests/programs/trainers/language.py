"""Trainers of language models."""

import json
import platform
import random

from eval.made_data import at, small_llama, texts, tokenizer
from trainers.trainer import Trainer

WORDS = ["one", "two", "three", "four", "five"]
CHAT = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"


def sentence(seed, length=40):
    return " ".join(random.Random(seed).choices(WORDS, k=length))


def lines(path, row, count=200):
    """A file of JSON, a line for each row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row(i)) + "\n" for i in range(count)))


def chat_llama(folder):
    """A small Llama whose tokenizer has a chat template."""
    import transformers

    small_llama(folder)
    words = transformers.AutoTokenizer.from_pretrained(folder / "model")
    words.chat_template = CHAT
    words.save_pretrained(folder / "model")


def stories_to_tokenize(folder):
    """Two files in the form of TinyStories."""
    for name in range(2):
        path = folder / f"TinyStories_all_data/{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([{"story": sentence(i, 300)} for i in range(200)]))


def instructions(path, count=100):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([{"instruction": sentence(i), "input": "", "output": sentence(-i)} for i in range(count)]))


def small_pythia(folder):
    """Pythia 14M's shape in the form of the Hugging Face Hub."""
    import transformers

    tokenizer(folder)
    config = transformers.GPTNeoXConfig(
        vocab_size=50304, hidden_size=128, intermediate_size=512, num_hidden_layers=6, num_attention_heads=4, rotary_pct=0.25
    )
    transformers.GPTNeoXForCausalLM(config).save_pretrained(folder)


def messages(path):
    lines(path, lambda i: {"messages": [{"role": "user", "content": sentence(i)}, {"role": "assistant", "content": sentence(-i)}]})


def preferences(path):
    lines(path, lambda i: {"prompt": sentence(i), "chosen": sentence(i + 1000), "rejected": sentence(i + 2000)})


def prompts(path):
    lines(path, lambda i: {"prompt": [{"role": "user", "content": sentence(i)}]})


def small_bert(folder):
    import transformers

    tokenizer(folder)
    config = transformers.BertConfig(vocab_size=2000, hidden_size=128, intermediate_size=512, num_hidden_layers=2, num_attention_heads=2)
    transformers.BertModel(config).save_pretrained(folder)


def scored_pairs(folder):
    """The STS benchmark's form: 64 pairs to learn from, and 32 in each other split."""
    for split, count in (("train", 64), ("validation", 32), ("test", 32)):
        lines(
            folder / f"{split}.jsonl",
            lambda i: {"sentence1": sentence(i, 10 + i), "sentence2": sentence(-i, 10 + i), "score": i / 64},
            count,
        )


def small_qwen(folder):
    """Qwen2's words and embedding, two layers."""
    import tokenizers
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    words = tokenizers.Tokenizer(tokenizers.models.BPE())
    words.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
    letters = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    words.train_from_iterator([" ".join(WORDS)], tokenizers.trainers.BpeTrainer(vocab_size=2000, initial_alphabet=letters))
    words.model.save(str(folder))
    config = transformers.Qwen2Config(
        hidden_size=128, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True
    )
    transformers.Qwen2ForCausalLM(config).save_pretrained(folder)


def small_mnist(folder):
    """MNIST's files with 512 pictures."""
    import numpy as np

    raw = folder / "MNIST/raw"
    raw.mkdir(parents=True, exist_ok=True)
    for kind in ("train", "t10k"):
        pixels = np.random.default_rng(1).integers(0, 256, (512, 28, 28), dtype=np.uint8)
        labels = np.random.default_rng(2).integers(0, 10, 512, dtype=np.uint8)
        for name, magic, array in (("images-idx3", 2051, pixels), ("labels-idx1", 2049, labels)):
            head = b"".join(number.to_bytes(4, "big") for number in (magic, *array.shape))
            (raw / f"{kind}-{name}-ubyte").write_bytes(head + array.tobytes())


def readme_program(path):
    """The first Python program of the checkout's README."""
    text = (path.parent / "README.md").read_text()
    path.write_text(text.split("```python\n")[1].split("```")[0])


def titan_assets(folder):
    """The tokenizer and data set of torchtitan's debug configurations."""
    import tokenizers

    texts(folder / "c4_test/data.json")
    words = tokenizers.Tokenizer(tokenizers.models.BPE())
    words.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
    special = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}
    words.train_from_iterator([" ".join(WORDS)], tokenizers.trainers.BpeTrainer(vocab_size=2000, special_tokens=list(special.values())))
    (folder / "tokenizer").mkdir()
    words.save(str(folder / "tokenizer/tokenizer.json"))
    (folder / "tokenizer/tokenizer_config.json").write_text(json.dumps(special))


LITGPT = dict(
    repository="Lightning-AI/litgpt",
    commit="2685705",
    packages=(
        "litgpt==0.5.13",
        "jsonargparse==4.41.0",
        "litdata==0.2.59",
        "tifffile==2025.5.10",
        "boto3==1.40.0",
        "botocore==1.40.0",
        "jmespath==1.0.1",
        "s3transfer==0.13.1",
    ),
)
LLAMA_FACTORY = (
    "llamafactory==0.9.5",
    "transformers==5.6.0",
    "huggingface_hub==1.10.0",
    "tokenizers==0.22.2",
    "accelerate==1.11.0",
    "peft==0.18.1",
    "trl==0.24.0",
    "datasets==4.0.0",
    "tyro==0.8.14",
    "av==16.0.0",
    "fire==0.7.1",
    "termcolor==3.1.0",
    "omegaconf==2.3.0",
    "antlr4-python3-runtime==4.9.3",
    "sentencepiece==0.2.1",
    "tiktoken==0.12.0",
    "modelscope==1.31.0",
    "hf_transfer==0.1.9",
    "torchaudio==2.11.0",
    "torchao==0.13.0",  # optional; peft fails with the newer one of the environment
)
TORCHTUNE = dict(
    source="https://docs.pytorch.org/torchtune/stable/tutorials/first_finetune_tutorial.html",
    packages=(
        "torchtune==0.6.1",
        "torchao==0.9.0",
        "torchdata==0.11.0",
        "kagglehub==0.3.13",
        "sentencepiece==0.2.1",
        "tiktoken==0.12.0",
        "blobfile==3.1.0",
        "omegaconf==2.3.0",
        "antlr4-python3-runtime==4.9.3",
    ),
    data=(at(small_qwen, "made/model"), at(instructions, "made/instructions.json")),
    options=("--gpu", "a100-80"),
    remark="2 layers, random weights, 4 steps",
)
QWEN = (
    " tokenizer.path=made/model/vocab.json tokenizer.merges_file=made/model/merges.txt checkpointer.checkpoint_dir=made/model"
    " output_dir=out model.vocab_size=151936 model.num_layers=2 model.num_heads=4 model.num_kv_heads=2 model.embed_dim=128"
    " model.intermediate_dim=512 model.max_seq_len=2048 model.tie_word_embeddings=True dataset.source=json"
    " dataset.data_files=made/instructions.json dataset.split=train max_steps_per_epoch=4 batch_size=2"
)
COMPOSER = (
    "mosaicml==0.32.1",
    "torchmetrics==1.7.4",
    "torch_optimizer==0.3.0",
    "coolname==2.2.0",
    "tabulate==0.9.0",
    "py-cpuinfo==9.0.0",
    "importlib-metadata==8.7.0",
    "mosaicml-cli==0.7.5",
    "lightning-utilities==0.15.2",
    "pytorch-ranger==0.1.1",
    "zipp==3.23.0",
    "psutil==7.2.2",
    "backoff==2.2.1",
    "gql==3.5.3",
    "websockets==15.0.1",
    "graphql-core==3.2.6",
    "ruamel.yaml==0.18.15",
    "arrow==1.3.0",
    "questionary==2.0.1",
    "validators==0.35.0",
    "termcolor==3.1.0",
    "argcomplete==3.6.2",
    "rich==13.9.4",
    "anyio==4.11.0",
    "yarl==1.22.0",
    "multidict==6.7.0",
    "propcache==0.4.1",
    "sniffio==1.3.1",
    "prompt_toolkit==3.0.52",
    "wcwidth==0.2.14",
    "python-dateutil==2.9.0.post0",
    "six==1.17.0",
    "markdown-it-py==4.0.0",
    "mdurl==0.1.2",
    "pandas==2.3.3",
    "pytz==2025.2",
    "tzdata==2025.2",
)
UNSLOTH = (
    "unsloth==2026.10.9",
    "unsloth_zoo==2026.10.9",
    "transformers==5.17.0",
    "trl==1.15.0",
    "datasets==4.8.5",
    "huggingface_hub==1.33.0",
    "tokenizers==0.23.1",
    "hf_transfer==0.1.9",
    "sentencepiece==0.2.1",
    "json5==0.12.0",
    "nest-asyncio==1.6.0",
    "structlog==25.4.0",
    "msgspec==0.19.0",
    "cut_cross_entropy==25.1.1",
)
TRL = dict(packages=(), source="https://huggingface.co/docs/trl/clis")

LANGUAGE = [
    Trainer(
        "LitGPT: pretrain",
        "litgpt pretrain --config config_hub/pretrain/debug.yaml --train.max_tokens=15360 --train.global_batch_size=10 --train.lr_warmup_steps=1"
        " --data.num_workers=1",
        source="https://github.com/Lightning-AI/litgpt/blob/main/tutorials/pretrain.md",
        steps=3,
        data=(at(stories_to_tokenize, "data/tinystories"), at(tokenizer, "checkpoints/EleutherAI/pythia-14m")),
        remark="3 steps of 2 micro-batches; made stories",
        **LITGPT,
    ),
    Trainer(
        "LitGPT: LoRA",
        "litgpt convert_to_litgpt made/pythia --model_name pythia-14m && litgpt finetune_lora made/pythia --data JSON"
        " --data.json_path made/instructions.json --data.val_split_fraction 0.1 --train.max_steps=4 --train.global_batch_size=2"
        " --train.lr_warmup_steps=1 --out_dir out/lora",
        source="https://github.com/Lightning-AI/litgpt/blob/main/tutorials/finetune_lora.md",
        steps=4,
        data=(at(small_pythia, "made/pythia"), at(instructions, "made/instructions.json")),
        remark="4 steps; random weights of Pythia 14M, made instructions",
        **LITGPT,
    ),
    Trainer(
        "TRL: trl sft",
        "trl sft --model_name_or_path data/model --dataset_name data/chats --output_dir out --max_steps 4 --per_device_train_batch_size 2",
        steps=4,
        data=(at(chat_llama, "data"), at(messages, "data/chats/train.jsonl")),
        remark="7M parameters, 4 steps",
        **TRL,
    ),
    Trainer(
        "TRL: trl dpo",
        "trl dpo --model_name_or_path data/model --dataset_name data/pairs --output_dir out --max_steps 4 --per_device_train_batch_size 2",
        steps=4,
        data=(at(chat_llama, "data"), at(preferences, "data/pairs/train.jsonl")),
        remark="7M parameters, 4 steps",
        **TRL,
    ),
    Trainer(
        "TRL: trl grpo",
        "trl grpo --model_name_or_path data/model --dataset_name data/prompts --reward_funcs think_format_reward --output_dir out"
        " --max_steps 3 --max_completion_length 16",
        steps=3,
        data=(at(chat_llama, "data"), at(prompts, "data/prompts/train.jsonl")),
        remark="7M parameters, 3 steps, completions of 16 tokens",
        **TRL,
    ),
    Trainer(
        "LLaMA-Factory: LoRA SFT",
        "llamafactory-cli train examples/train_lora/qwen3_lora_sft.yaml model_name_or_path=made/model max_samples=40 max_steps=4"
        " gradient_accumulation_steps=2 preprocessing_num_workers=1 dataloader_num_workers=1 output_dir=saves/made",
        repository="hiyouga/LLaMA-Factory",
        commit="ff6d4d1",
        source="https://github.com/hiyouga/LLaMA-Factory/blob/main/examples/README.md",
        steps=4,
        packages=LLAMA_FACTORY,
        data=(at(small_llama, "made"),),
        options=("--gpu", "a100-80"),
        environment=(("USE_MODELSCOPE_HUB", "0"),),
        remark="7M parameters, 4 steps",
    ),
    Trainer(
        "Sentence Transformers: STS",
        "python examples/sentence_transformer/training/sts/training_stsbenchmark_continue_training.py made/bert",
        repository="UKPLab/sentence-transformers",
        commit="85ec645",
        source="https://www.sbert.net/examples/sentence_transformer/training/sts/README.html",
        steps=16,
        packages=("sentence-transformers==6.2.0", "scikit-learn==1.7.2", "joblib==1.5.2", "threadpoolctl==3.6.0"),
        data=(at(small_bert, "made/bert"), at(scored_pairs, "sentence-transformers/stsb")),
        remark="a small BERT, 64 made pairs",
    ),
    Trainer(
        "Megatron-LM: pretrain_gpt.py",
        "torchrun --nproc_per_node 1 pretrain_gpt.py --mock-data --num-layers 4 --hidden-size 256 --num-attention-heads 4 --seq-length 512"
        " --max-position-embeddings 512 --micro-batch-size 4 --train-iters 4 --lr 1e-4 --bf16 --tokenizer-type NullTokenizer"
        " --vocab-size 50256 --transformer-impl local --no-persist-layer-norm --no-gradient-accumulation-fusion"
        " --no-masked-softmax-fusion --eval-iters 1 --eval-interval 4",
        packages=("six==1.17.0", "pybind11==3.0.1"),
        environment=(("PYENV_VERSION", platform.python_version()),),  # its Makefile asks python3-config
        repository="NVIDIA/Megatron-LM",
        commit="55ac708251",
        source="https://github.com/NVIDIA/Megatron-LM/blob/main/docs/user-guide/data-loading.md",
        steps=4,
        options=("--gpu", "a100-80"),
        remark="4 layers, 4 steps, without the compiled extensions of Apex and Transformer Engine",
    ),
    Trainer(
        "torchtitan: llama3_debugmodel",
        "torchrun --nproc_per_node=2 --master-port 29571 -m torchtitan.train --module llama3 --config llama3_debugmodel --training.steps 4",
        source="https://github.com/pytorch/torchtitan#quick-start",
        steps=4,
        packages=("torchtitan==0.3.0",),
        data=(at(titan_assets, "tests/assets"),),
        options=("--gpu", "h100-80"),
        remark="2 ranks, 4 steps",
    ),
    Trainer(
        "torchtune: LoRA",
        "tune run lora_finetune_single_device --config qwen2/0.5B_lora_single_device model._component_=torchtune.models.qwen2.lora_qwen2"
        " dataset._component_=torchtune.datasets.instruct_dataset gradient_accumulation_steps=2" + QWEN,
        steps=4,
        **TORCHTUNE,
    ),
    Trainer(
        "torchtune: full",
        "tune run full_finetune_single_device --config qwen2/0.5B_full_single_device model._component_=torchtune.models.qwen2.qwen2"
        " dataset._component_=torchtune.datasets.instruct_dataset" + QWEN,
        steps=4,
        **TORCHTUNE,
    ),
    Trainer(
        "Composer: README",
        "python readme_program.py",
        repository="mosaicml/composer",
        commit="6405188",
        source="https://github.com/mosaicml/composer#quick-start",
        steps=8,
        packages=COMPOSER,
        data=(at(readme_program, "readme_program.py"), at(small_mnist, "data")),
        torch="2.6.0",
        remark="512 made pictures",
    ),
    Trainer(
        "Ray Train: torch_linear_example",
        "python -m ray.train.examples.pytorch.torch_linear_example --num-workers 1 --use-gpu --epochs 1",
        source="https://docs.ray.io/en/latest/train/examples.html",
        packages=("ray==2.60.0",),
        environment=(("RAY_TRAIN_V2_ENABLED", "0"), ("RAY_LOG_TO_STDERR", "1")),  # its successor kills the worker
        steps=250,
        remark="1 worker, 1 epoch",
    ),
    Trainer(
        "unsloth: unsloth-cli.py",
        "python unsloth-cli.py --model_name made/model --dataset made/instructions --max_seq_length 256 --max_steps 4"
        " --per_device_train_batch_size 2 --r 8 --output_dir out",
        repository="unslothai/unsloth",
        commit="015bdef",
        source="https://github.com/unslothai/unsloth/blob/main/unsloth-cli.py",
        steps=4,
        packages=UNSLOTH,
        data=(at(chat_llama, "made"), at(instructions, "made/instructions/train.json")),
        options=("--gpu", "a100-80"),
        remark="7M parameters, 4 steps",
    ),
]
