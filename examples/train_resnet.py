"""A ResNet, written for one device, trained on four processes.

python examples/train_resnet.py
"""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy

import girih
from girih.models import wide_resnet


def main(steps: int = 5) -> list[float]:
    torch.manual_seed(0)
    model = wide_resnet(14, blocks=(1, 1, 1, 1), channels=8, image=32, classes=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images, labels = torch.randn(16, 3, 32, 32), torch.randint(10, (16,))

    step = girih.TrainingStep(model, loss=cross_entropy, optimizer=optimizer)
    plan = girih.plan(step, (images, labels), machine="local:4", memory="7MB", objective="bytes")
    print(plan)

    losses = []
    with plan.start() as running:
        for number in range(steps):
            losses.append(running.step(images, labels))
            print(f"step {number + 1}: loss {losses[-1]:.4f}")
        trained = running.state_dict()
    model.load_state_dict(trained)
    print(f"{len(trained)} trained tensors are back in the model")
    return losses


if __name__ == "__main__":
    main()
