"""Examples that come with PyTorch, transformers, accelerate and DeepSpeed, and small programs that many people start from."""

import random

from eval.made_data import at, characters, classes, hours, mnist, text_data
from trainers import made_examples as made
from trainers.trainer import Trainer

NANO_GPT = dict(repository="karpathy/nanoGPT", commit="3adf61e1", source="https://github.com/karpathy/nanoGPT#quick-start")


def pytorch(folder, name="", **row):
    """An example of pytorch/examples."""
    return Trainer(
        f"PyTorch examples: {name or folder}",
        repository="pytorch/examples",
        commit="77f55b9",
        folder=folder,
        source=f"https://github.com/pytorch/examples/tree/main/{folder}",
        **row,
    )


def words(folder, train=4000):
    """The files of WikiText-2 with few words, in lines of twenty."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", train), ("valid", 2000), ("test", 2000)):
        drawn = random.Random(1).choices([f"word{i}" for i in range(10_000)], k=count)
        lines = (" ".join(drawn[i : i + 20]) for i in range(0, count, 20))
        (folder / f"{name}.txt").write_text("".join(f" {line} \n" for line in lines))


def transformers(folder, script, arguments, name="", **row):
    """An example of transformers, for its Trainer. The release comes from the main environment."""
    return Trainer(
        f"transformers examples: {name or script}",
        f"python {script}.py {arguments} --output_dir out",
        repository="huggingface/transformers",
        commit="5a67f0a7ac",
        folder=f"examples/pytorch/{folder}",
        source=f"https://github.com/huggingface/transformers/tree/main/examples/pytorch/{folder}",
        **{"packages": ("evaluate==0.4.6",), "remark": "small random model; made data and metric; few steps", **row},
    )


def in_example(folder, *makers):
    """(maker, folder or file below the example's) each."""
    return tuple(at(make, f"examples/pytorch/{folder}/{name}", **options) for make, name, options in makers)


HYDRA = ("hydra-core==1.3.2", "omegaconf==2.3.0", "antlr4-python3-runtime==4.9.3")

CLI = ("jsonargparse==4.53.0", "typeshed-client==2.15.0", "importlib-resources==6.5.2")


def lightning(script, **row):
    """An example of PyTorch Lightning, whose command line is LightningCLI."""
    return Trainer(
        f"Lightning examples: {script}",
        f"python {script}.py --trainer.accelerator gpu --trainer.devices 1 --trainer.max_steps 5 --trainer.limit_val_batches 3"
        " --trainer.limit_test_batches 3 --trainer.limit_predict_batches 3",
        repository="Lightning-AI/pytorch-lightning",
        commit="7f0c3436cd",
        folder="examples/pytorch/basics",
        source="https://github.com/Lightning-AI/pytorch-lightning/tree/master/examples/pytorch/basics",
        steps=5,
        packages=CLI,
        data=(at(mnist, "examples/Datasets"), at(mnist, "examples/pytorch/basics/data", train=1, test=1)),  # it looks into the latter first
        remark="made digits; few steps",
    )


LANGUAGE_FILES = "--train_file made/train.json --validation_file made/validation.json --do_train --do_eval"

MADE_MNIST = at(mnist, "data", train=2560, test=512)
WORDS = at(words, "word_language_model/data/made")

EXAMPLES = [
    Trainer(
        "nanoGPT",
        "python train.py config/train_shakespeare_char.py --max_iters=5 --eval_iters=2",
        steps=6,
        data=(at(characters, "data/shakespeare_char"),),
        remark="few iterations; made characters",
        **NANO_GPT,
    ),
    pytorch(
        "word_language_model",
        command="python main.py --accel --epochs 1 --data data/made",
        steps=6,
        data=(WORDS,),
        remark="made words; its loop steps without an optimizer",
    ),
    pytorch(
        "word_language_model",
        "word_language_model, Transformer",
        command="python main.py --accel --epochs 1 --model Transformer --lr 5 --data data/made",
        steps=6,
        data=(WORDS,),
        remark="made words; its loop steps without an optimizer",
    ),
    pytorch("mnist", command="python main.py --epochs 1 --batch-size 512", steps=5, data=(MADE_MNIST,), remark="made digits"),
    pytorch("vae", command="python main.py --epochs 1 --batch-size 512", steps=5, data=(MADE_MNIST,), remark="made digits"),
    pytorch(
        "imagenet",
        command="python main.py -a resnet18 --epochs 1 -b 32 -j 1 made",
        steps=3,
        data=(at(classes, "imagenet/made/train", count=48), at(classes, "imagenet/made/val", count=16)),
        remark="made pictures",
    ),
    pytorch(
        "imagenet",
        "imagenet, 2 ranks",
        command="python main.py -a resnet50 --dist-url tcp://127.0.0.1:29555 --dist-backend nccl --multiprocessing-distributed"
        " --world-size 1 --rank 0 --epochs 1 -b 32 -j 2 made",
        steps=3,
        data=(at(classes, "imagenet/made/train", count=48), at(classes, "imagenet/made/val", count=16)),
        options=("--gpus", "2"),
        remark="made pictures",
    ),
    pytorch("dcgan", command="python main.py --dataset fake --accel --niter 1 --batchSize 200", steps=5, remark="its own fake pictures"),
    pytorch("siamese_network", command="python main.py --epochs 1 --batch-size 512", steps=5, data=(MADE_MNIST,), remark="made digits"),
    pytorch(
        "distributed/minGPT-ddp/mingpt",
        "minGPT-ddp",
        command="torchrun --standalone --nproc_per_node=2 main.py data_config.path=made.txt trainer_config.max_epochs=1",
        steps=6,
        data=(at(text_data, "distributed/minGPT-ddp/mingpt/made.txt", size=60_000),),
        packages=(
            *HYDRA,
            "boto3==1.44.8",
            "botocore==1.44.8",
            "jmespath==1.1.0",
            "s3transfer==0.19.3",
        ),
        options=("--gpus", "2"),
        remark="made characters",
    ),
    pytorch(
        "distributed/FSDP2",
        "FSDP2",
        command="torchrun --nproc_per_node 2 example.py --mixed-precision",
        steps=10,
        options=("--gpus", "2"),
    ),
    pytorch(
        "distributed/tensor_parallelism",
        "tensor parallelism with FSDP",
        command="bash run_example.sh fsdp_tp_example.py 4",
        steps=10,
        options=("--gpus", "4"),
    ),
    transformers(
        "language-modeling",
        "run_clm",
        f"--model_name_or_path made/gpt2 {LANGUAGE_FILES} --per_device_train_batch_size 8 --per_device_eval_batch_size 8 --max_steps 4",
        steps=4,
        data=in_example("language-modeling", (made.texts, "made", {}), (made.gpt2, "made/gpt2", {}), (made.metric, "accuracy", {})),
    ),
    transformers(
        "language-modeling",
        "run_mlm",
        f"--model_name_or_path made/bert {LANGUAGE_FILES} --per_device_train_batch_size 8 --per_device_eval_batch_size 8 --max_steps 4",
        steps=4,
        data=in_example("language-modeling", (made.texts, "made", {}), (made.bert, "made/bert", {}), (made.metric, "accuracy", {})),
    ),
    transformers(
        "text-classification",
        "run_glue",
        "--model_name_or_path made/bert --train_file made/train.csv --validation_file made/validation.csv --do_train --do_eval"
        " --max_seq_length 128 --per_device_train_batch_size 32 --learning_rate 2e-5 --max_steps 4",
        steps=4,
        data=in_example("text-classification", (made.pairs, "made", {}), (made.bert, "made/bert", {}), (made.metric, "accuracy", {})),
    ),
    transformers(
        "question-answering",
        "run_qa",
        "--model_name_or_path made/bert --train_file made/train.json --validation_file made/validation.json --do_train"
        " --per_device_train_batch_size 12 --learning_rate 3e-5 --max_seq_length 384 --doc_stride 128 --max_steps 4",
        steps=4,
        data=in_example("question-answering", (made.answers, "made", {}), (made.bert, "made/bert", {}), (made.metric, "squad", {})),
    ),
    transformers(
        "image-classification",
        "run_image_classification",
        "--model_name_or_path made/vit --train_dir made/train --validation_dir made/validation --remove_unused_columns False --do_train"
        " --do_eval --learning_rate 2e-5 --max_steps 4 --per_device_train_batch_size 8 --per_device_eval_batch_size 8"
        " --eval_strategy epoch --save_strategy epoch --seed 1337",
        steps=4,
        data=in_example(
            "image-classification",
            (classes, "made/train", {"count": 16}),
            (classes, "made/validation", {"count": 8}),
            (made.vit, "made/vit", {}),
            (made.metric, "accuracy", {}),
        ),
    ),
    transformers(
        "object-detection",
        "run_object_detection",
        "--model_name_or_path made/detr --dataset_name made/boxes --do_train true --do_eval true --max_steps 4 --image_square_size 600"
        " --fp16 true --learning_rate 5e-5 --weight_decay 1e-4 --dataloader_num_workers 1 --dataloader_prefetch_factor 2"
        " --per_device_train_batch_size 8 --remove_unused_columns false --eval_do_concat_batches false --ignore_mismatched_sizes true"
        " --eval_strategy epoch --save_strategy epoch --seed 1337",
        steps=4,
        packages=("albumentations==2.0.8", "albucore==0.0.24", "simsimd==6.5.3", "stringzilla==4.2.3", "pycocotools==2.0.11"),
        data=in_example("object-detection", (made.boxed, "made/boxes", {}), (made.detr, "made/detr", {})),
        remark="small random model; made data; few steps",
    ),
    Trainer(
        "accelerate: nlp_example",
        "accelerate launch --mixed_precision fp16 nlp_example.py --mixed_precision fp16",
        source="https://github.com/huggingface/accelerate/tree/main/examples#simple-nlp-example",
        steps=6,
        repository="huggingface/accelerate",
        commit="16cb6eb80d",
        folder="examples",
        packages=("evaluate==0.4.6",),
        data=(at(made.bert, "examples/bert-base-cased"), at(made.glue, "examples/nyu-mll/glue"), at(made.metric, "examples/glue")),
        remark="small random model under the name of its own; made data and metric",
    ),
    Trainer(
        "DeepSpeedExamples: GAN",
        "deepspeed gan_deepspeed_train.py --dataset fake --cuda --deepspeed_config gan_deepspeed_config.json"
        " --tensorboard_path ./runs/deepspeed --workers 2",
        source="https://github.com/deepspeedai/DeepSpeedExamples/blob/master/training/gan/gan_deepspeed_run.sh",
        steps=16,
        repository="deepspeedai/DeepSpeedExamples",
        commit="45b4b715",
        folder="training/gan",
        remark="its own fake pictures",
    ),
    Trainer(
        "minGPT: chargpt",
        "python projects/chargpt/chargpt.py --trainer.max_iters=6",
        source="https://github.com/karpathy/minGPT/tree/master/projects/chargpt",
        steps=6,
        repository="karpathy/minGPT",
        commit="37baab7",
        python_path=".",
        data=(at(made.play, "input.txt"),),
        remark="few iterations; made text",
    ),
    Trainer(
        "lightning-hydra-template",
        "python src/train.py trainer=gpu trainer.max_epochs=1 data.batch_size=512 data.train_val_test_split=[2048,512,512]",
        source="https://github.com/ashleve/lightning-hydra-template#-quickstart",
        steps=4,
        repository="ashleve/lightning-hydra-template",
        commit="bddbc24",
        packages=(*HYDRA, "hydra-colorlog==1.2.0", "colorlog==6.12.0", "rootutils==1.0.7", "python-dotenv==1.2.4", "lightning==2.5.6"),
        data=(at(mnist, "data", train=2560, test=512),),
        remark="one epoch of made digits",
    ),
    lightning("autoencoder"),
    lightning("backbone_image_classifier"),
    Trainer(
        "x-transformers: enwik8",
        "python train_enwik8.py --num_batches 5 --generate_length 64",
        source="https://github.com/lucidrains/x-transformers/blob/main/train_enwik8.py",
        steps=5,
        repository="lucidrains/x-transformers",
        commit="9252ed7",
        packages=(
            "wandb==0.28.2",
            "opentelemetry-api==1.45.2",
            "sentry-sdk==2.75.0",
            "fire==0.7.1",
            "termcolor==3.3.0",
            "einx==0.4.3",
            "frozendict==2.5.1",
            "loguru==0.7.3",
            "torch-einops-utils==0.2.0",
        ),
        data=(at(text_data, "data/enwik8.gz", size=95_000_000),),
        remark="few batches; made text",
    ),
    Trainer(
        "Time-Series-Library: PatchTST",
        "python -u run.py --task_name long_term_forecast --is_training 1 --root_path ./dataset/ETT-small/ --data_path ETTh1.csv"
        " --model_id ETTh1_96_96 --model PatchTST --data ETTh1 --features M --seq_len 96 --label_len 48 --pred_len 96 --e_layers 1"
        " --d_layers 1 --factor 3 --enc_in 7 --dec_in 7 --c_out 7 --des Exp --n_heads 2 --itr 1 --train_epochs 1 --batch_size 1800"
        " --num_workers 0",
        source="https://github.com/thuml/Time-Series-Library/blob/main/scripts/long_term_forecast/ETT_script/PatchTST_ETTh1.sh",
        steps=5,
        repository="thuml/Time-Series-Library",
        commit="4e938a1",
        packages=(
            "sktime==0.40.1",
            "scikit-base==0.13.0",
            "scikit-learn==1.7.2",
            "joblib==1.6.0",
            "threadpoolctl==3.8.0",
            "patool==4.0.3",
            "cloudpickle==3.1.3",
            "reformer-pytorch==1.4.4",
            "local-attention==1.11.2",
            "axial-positional-embedding==0.3.12",
            "product-key-memory==0.3.0",
            "colt5-attention==0.11.2",
            "hyper-connections==0.4.11",
        ),
        data=(at(hours, "dataset/ETT-small/ETTh1.csv"),),
        remark="one epoch with a large batch; made series",
    ),
]
