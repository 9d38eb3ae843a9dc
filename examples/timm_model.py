"""Test-time augmentation for a timm model in ten lines.

python examples/timm_model.py
"""

import torch

import relook

import timm  # isort: skip  # after relook, for a torchvision that was built for another torch

network = timm.create_model("resnet10t", pretrained=False, num_classes=10).eval()
config = timm.data.resolve_model_data_config(network)
views = relook.sample_pool("imagenet", 40, 0)[:5]  # yours: relook.Policy.load("policy.json")
model = relook.TTA(
    network,
    relook.Policy(views, recipe="imagenet"),
    temperature=None,  # leave it out for a policy that was searched or calibrated
    mean=config["mean"],
    std=config["std"],
)
images = torch.randint(0, 256, (2, 3, 224, 224), dtype=torch.uint8)
print(model(images).shape, model.predict(images), model.uncertainty(images).mutual_information)
