"""The programs of run.py: names, commands, requirements, expected results."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Program:
    group: str
    name: str
    command: tuple  # SCRIPTS stands for the folder of the scripts
    packages: tuple = ()  # in addition to torch
    steps: int | None = None  # that the report must have seen
    options: tuple = ()  # of gpucast run
    message: str = ""  # the message, with exit code 2, for a program that cannot run
    limit: float = 300  # seconds
    whole: bool = False  # the command itself calls gpucast
    leaves: str = r"torchelastic_"  # names of files in the temporary folder that the program leaves wherever it runs


def python(script, *arguments):
    return ("python", f"SCRIPTS/{script}", *arguments)


def torchrun(ranks, script, *arguments):
    return ("torchrun", "--nproc-per-node", str(ranks), f"SCRIPTS/{script}", *arguments)


MODELS = ("mlp", "resnet", "mobilenet", "vgg", "unet", "convnext", "vit", "gpt", "bert", "llama", "lstm", "recommender")
MODES = ("eager", "default", "reduce-overhead", "max-autotune")
COMPILED = [
    Program("torch.compile", f"{model}, {mode}", python("models.py", model, mode), steps=4, limit=600) for model in MODELS for mode in MODES
]

# Temporary files of launchers, which are ended with the script and cannot remove them.
OF_PYTHON = r"torchelastic_|tmp\w{8}(\.json)?$"

# "library: program": script and its argument, what it needs, steps.
TRAINER = ("transformers", "accelerate")
LIBRARIES = [
    Program("Libraries", "transformers: Trainer, loads what it saved", python("with_transformers.py", "reload"), TRAINER, message="which was not written"),
    *(
        Program("Libraries", f"transformers: {name}", python("with_transformers.py", kind), TRAINER, steps=steps)
        for name, kind, steps in (
            ("Trainer, GPT-2 in bf16", "gpt2", 4),
            ("Trainer, BERT in fp16 with evaluation", "bert", 4),
            ("Trainer, Llama with checkpointing and accumulation", "llama", 4),
            ("Trainer, torch_compile", "compile", 4),
            ("Seq2SeqTrainer, T5 with predict_with_generate", "t5", 2),
            ("Mixtral, eager experts", "mixtral", 3),
            ("Mixtral, grouped experts", "mixtral-grouped", 3),
            ("Qwen2-VL", "qwen2-vl", 3),
            ("ViT", "vit", 3),
            ("Whisper", "whisper", 3),
            ("DETR", "detr", 3),
            ("generate() alone", "generate", 0),
        )
    ),
    *(
        Program("Libraries", f"accelerate: {name}", command, ("accelerate", "transformers"), steps=steps)
        for name, command, steps in (
            ("one rank", ("accelerate", "launch", "--num_processes", "1", "SCRIPTS/with_accelerate.py"), 3),
            ("launch, 2 ranks", ("accelerate", "launch", "--multi_gpu", "--num_processes", "2", "SCRIPTS/with_accelerate.py"), 3),
            ("launch, 2 ranks, FSDP2", ("accelerate", "launch", "--use_fsdp", "--fsdp_version", "2", "--num_processes", "2", "SCRIPTS/with_accelerate.py"), 3),
            ("find_executable_batch_size", python("with_accelerate.py", "--find"), 3),
        )
    ),
    *(
        Program("Libraries", f"Lightning: {name}", python("with_lightning.py", *arguments), ("lightning",), steps=4, options=("--gpus", arguments[1]), leaves=OF_PYTHON)
        for name, arguments in (
            ("one device", ("auto", "1")),
            ("2 devices, DDP", ("ddp", "2")),
            ("2 devices, DDP spawned", ("ddp_spawn", "2")),
            ("2 devices, FSDP", ("fsdp", "2")),
        )
    ),
    *(
        Program("Libraries", name, python(script, *arguments), packages, steps=steps, leaves="torch_geometric|__pycache__")
        for name, script, arguments, packages, steps in (
            ("timm: EfficientNet with EMA and AMP", "with_timm.py", ("efficientnet_b0",), ("timm",), 3),
            ("timm: ViT, channels last", "with_timm.py", ("vit_tiny_patch16_224",), ("timm",), 3),
            ("PEFT: LoRA on Llama", "with_peft.py", ("lora",), ("peft", "transformers"), 3),
            ("PEFT: QLoRA, 4 bits by bitsandbytes", "with_peft.py", ("4bit",), ("peft", "bitsandbytes"), 3),
            ("PEFT: LoRA on 8 bits by bitsandbytes", "with_peft.py", ("8bit",), ("peft", "bitsandbytes"), 3),
            ("bitsandbytes: AdamW8bit", "with_bitsandbytes.py", (), ("bitsandbytes",), 3),
            ("diffusers: UNet, DDPM, EMA", "with_diffusers.py", ("ddpm",), ("diffusers",), 3),
            ("diffusers: DiT", "with_diffusers.py", ("dit",), ("diffusers",), 3),
            ("diffusers: AutoencoderKL", "with_diffusers.py", ("vae",), ("diffusers",), 3),
            ("TRL: SFT", "with_trl.py", ("sft",), ("trl", "datasets"), 3),
            ("TRL: DPO", "with_trl.py", ("dpo",), ("trl", "datasets"), 3),
            ("TRL: reward model", "with_trl.py", ("reward",), ("trl", "datasets"), 3),
            ("TRL: GRPO", "with_trl.py", ("grpo",), ("trl", "datasets"), 2),
            ("torchvision: Faster R-CNN", "with_torchvision.py", ("fasterrcnn_resnet50_fpn",), ("torchvision",), 3),
            ("torchvision: Mask R-CNN", "with_torchvision.py", ("maskrcnn_resnet50_fpn",), ("torchvision",), 3),
            ("torchvision: RetinaNet", "with_torchvision.py", ("retinanet_resnet50_fpn",), ("torchvision",), 3),
            ("torchvision: SSD", "with_torchvision.py", ("ssd300_vgg16",), ("torchvision",), 3),
            ("torchvision: DeepLab", "with_torchvision.py", ("deeplabv3_mobilenet_v3_large",), ("torchvision",), 3),
            ("PyTorch Geometric: GCN", "with_geometric.py", ("gcn",), ("torch_geometric",), 3),
            ("PyTorch Geometric: GAT, batches and pooling", "with_geometric.py", ("gat",), ("torch_geometric",), 3),
            ("PyTorch Geometric: top-k pooling", "with_geometric.py", ("topk",), ("torch_geometric",), 3),
            ("Ultralytics: YOLO", "with_ultralytics.py", (), ("ultralytics",), None),
            ("torchao: 8-bit AdamW", "with_torchao.py", ("adam8bit",), ("torchao",), 3),
            ("torchao: quantization-aware training", "with_torchao.py", ("qat",), ("torchao",), 3),
            ("Liger: Llama", "with_liger.py", (), ("liger-kernel", "transformers"), 3),
            ("DeepSpeed: ZeRO 1", "with_deepspeed.py", ("1",), ("deepspeed",), 3),
        )
    ),
    Program("Libraries", "torchao: float8 training, H100", python("with_torchao.py", "float8"), ("torchao",), steps=3, options=("--gpu", "h100-80")),
    Program("Libraries", "torchao: float8 training, A100", python("with_torchao.py", "float8"), ("torchao",), message="compute capability >= 9.0 or 8.9"),
    *(
        Program("Libraries", f"DeepSpeed: ZeRO {stage}, 2 ranks", torchrun(2, "with_deepspeed.py", stage), ("deepspeed",), steps=3)
        for stage in ("1", "2", "3", "3-offload")
    ),
    Program("Libraries", "DeepSpeed: its launcher, ZeRO 2, 2 ranks", ("deepspeed", "--num_gpus", "2", "SCRIPTS/with_deepspeed.py", "2"), ("deepspeed",), steps=3, options=("--gpus", "2")),
    Program("Libraries", "transformers: Trainer, 2 ranks by torchrun", torchrun(2, "with_transformers.py", "gpt2"), TRAINER, steps=4),
    Program("Libraries", "TRL: SFT, 2 ranks by accelerate", ("accelerate", "launch", "--multi_gpu", "--num_processes", "2", "SCRIPTS/with_trl.py", "sft"), ("trl", "accelerate"), steps=3),
    Program("Libraries", "accelerate: 16 machines, this one the first", ("accelerate", "launch", "--multi_gpu", "--num_machines", "16", "--num_processes", "32", "--machine_rank", "0", "--main_process_ip", "node0.example", "--main_process_port", "29513", "SCRIPTS/with_accelerate.py", "--batch", "512"), ("accelerate", "transformers"), steps=3),
    Program("Libraries", "notebook: papermill", ("papermill", "SCRIPTS/train.ipynb", "out.ipynb", "-k", "python3"), ("papermill", "ipykernel"), steps=3, leaves=OF_PYTHON),
    Program("Libraries", "notebook: nbconvert", ("jupyter", "nbconvert", "--to", "notebook", "--execute", "SCRIPTS/train.ipynb", "--output-dir", "."), ("nbconvert", "ipykernel"), steps=3, leaves=OF_PYTHON),
]  # fmt: skip

KINDS = ("ddp", "fsdp1", "fsdp2", "tp", "pp")
SEVERAL = [
    *(
        Program("Several GPUs", f"{kind.upper()}, {ranks} ranks", torchrun(ranks, "ranks.py", kind), steps=3)
        for kind in KINDS
        for ranks in (2, 4)
    ),
    Program("Several GPUs", "HSDP, 4 ranks", torchrun(4, "ranks.py", "hsdp"), steps=3),
    Program("Several GPUs", "DDP, no_sync and bucket views, 4 ranks", torchrun(4, "ranks.py", "no_sync"), steps=3),
    Program("Several GPUs", "TP, PP and ZeRO 1 in a loop of one's own, 8 ranks", torchrun(8, "three_d.py"), steps=5),
    Program("Several GPUs", "ZeroRedundancyOptimizer, 2 ranks", torchrun(2, "ranks.py", "zero"), steps=3),
    Program("Several GPUs", "context parallel, 2 ranks", torchrun(2, "ranks.py", "cp"), steps=3),
    Program("Several GPUs", "torchrun --nproc-per-node gpu", ("torchrun", "--nproc-per-node", "gpu", "SCRIPTS/ranks.py", "ddp"), steps=3, options=("--gpus", "2")),
    Program("Several GPUs", "mp.spawn over 2 devices", python("spawned.py"), steps=3, options=("--gpus", "2")),
    Program("Several GPUs", "DataParallel over 2 devices", python("devices.py", "dp"), steps=3, options=("--gpus", "2")),
    Program("Several GPUs", "model spread over 2 devices", python("devices.py", "spread"), steps=3, options=("--gpus", "2")),
    *(
        Program("Several GPUs", f"torchrun --nnodes 16, node {node}, {name}", ("torchrun", "--nnodes", "16", "--nproc-per-node", "2", *place, "SCRIPTS/ranks.py", "ddp"), steps=3)
        for name, node, place in (
            ("static", 0, ("--node-rank", "0", "--master-addr", "node0.example", "--master-port", "29511")),
            ("static", 3, ("--node-rank", "3", "--master-addr", "node0.example", "--master-port", "29511")),
            ("c10d", 0, ("--rdzv-backend", "c10d", "--rdzv-endpoint", "node0.example:29512", "--rdzv-id", "7")),
        )
    ),
    Program("Several GPUs", "torchrun --nnodes 4, FSDP2", ("torchrun", "--nnodes", "4", "--node-rank", "0", "--nproc-per-node", "2", "SCRIPTS/ranks.py", "fsdp2"), steps=3),
]  # fmt: skip

PLAIN = [
    Program("Plain PyTorch", name, python("plain.py", kind), steps=steps, leaves="torchinductor_" if kind == "aot" else "torchelastic_")
    for name, kind, steps in (
        ("variational autoencoder, torch.distributions", "vae", 3),
        ("PPO, Categorical policy", "ppo", 3),
        ("GAN, two optimizers", "gan", 3),
        ("GradScaler in fp16", "scaler", 3),
        ("EMA by AveragedModel", "ema", 3),
        ("L-BFGS", "lbfgs", 3),
        ("CTC loss", "ctc", 3),
        ("torch.func: per-sample gradients", "func", 3),
        ("jagged nested tensors", "nested", 3),
        ("sparse embeddings", "sparse", 3),
        ("activations on the host (save_on_cpu)", "offload", 3),
        ("checkpoint, selective", "checkpoint", 3),
        ("TorchScript", "script", 3),
        ("graphed callables", "graphed", 3),
        ("flex_attention, compiled", "flex", 3),
        ("a Triton kernel of the script's", "triton", 3),
        ("compiled autograd", "autograd", 3),
        ("compiled optimizer", "optimizer", 3),
        ("AOTInductor", "aot", 0),
        ("inference in fp16, generate loop with a cache", "inference", 0),
        ("mixture of experts, eager routing", "moe", 3),
        ("DataLoader with 2 workers, pinned memory", "loader", 3),
        ("graph network by scatter_add", "graph", 3),
    )
]

ENDINGS = [
    Program("Endings", "script raises", python("endings.py", "raises"), message=r"the script raised ValueError: no more data"),
    Program("Endings", "script exits with 3", python("endings.py", "exits"), message=r"the script failed \(exit code 3\)"),
    Program("Endings", "no CUDA call", python("endings.py", "cpu"), message="the command imported PyTorch and never used CUDA"),
    Program("Endings", "a rank raises, 2 ranks", torchrun(2, "endings.py", "rank-raises"), message="the script raised ValueError: rank 1 finds no data"),
    Program("Endings", "--timeout on an endless script", python("endings.py", "endless"), options=("--timeout", "15"), steps=2),
    *(
        Program("Endings", f"{name}, 2 ranks", ("python", "SCRIPTS/end_from_outside.py", "GPUCAST", kind), whole=True, limit=120, message=f"ended by {kind}")
        for name, kind in (("Ctrl-C", "SIGINT"), ("SIGTERM", "SIGTERM"), ("kill -9 of gpucast", "SIGKILL"))
    ),
]  # fmt: skip

PROGRAMS = [*COMPILED, *LIBRARIES, *SEVERAL, *PLAIN, *ENDINGS]
