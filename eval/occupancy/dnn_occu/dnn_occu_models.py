"""Table II's models, by what they read."""

TORCHVISION = ("convnext_base", "resnet18", "resnet34", "resnet50", "vgg11", "vgg13", "vgg16", "alexnet", "swin_s", "maxvit_t")
IMAGE = (*TORCHVISION, "lenet", "vit_s", "vit_t")
SEQUENCE = ("lstm", "rnn")
TEXT = ("distilbert", "gpt2")
CLIP = ("clip_rn50", "clip_vit_b_32", "clip_vit_b_16")
MODELS = IMAGE + SEQUENCE + TEXT + CLIP
