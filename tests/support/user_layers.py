"""Programs over rows and images: convolutions, norms, masks, losses, random numbers, ways to write a step."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from user_programs import BATCH, Forward, draw, pairs, program, whole

ROWS = pairs((8,), (3,))
IMAGES = pairs((3, 8, 8), (3,))


def linear(forward):
    return lambda: Forward(forward, own=nn.Linear(8, 3))


def images(*layers, features):
    return lambda: nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, 3))


# ------------------------------------------------------------------------------------------- layers

program("GroupNorm", images(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.SiLU(), features=512), IMAGES)
program("InstanceNorm", images(nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8, affine=True), nn.ELU(), features=288), IMAGES)
program(
    "LayerNorm and RMSNorm",
    lambda: nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.RMSNorm(8, eps=1e-6), nn.Softplus(), nn.Linear(8, 3)),
    ROWS,
)
program(
    "PReLU, GLU, Mish",
    lambda: nn.Sequential(nn.Linear(8, 16), nn.GLU(), nn.PReLU(8), nn.Mish(), nn.Linear(8, 3), nn.LogSoftmax(1)),
    ROWS,
)
program(
    "weight norm",
    lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(8, 16)), nn.Tanh(), nn.Linear(16, 3)),
    ROWS,
    undivided="aten._weight_norm_interface_backward",
)
program(
    "spectral norm",
    lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(8, 16)), nn.Tanh(), nn.Linear(16, 3)),
    ROWS,
)
program(
    "depthwise Conv1d",
    images(nn.Conv1d(3, 8, 3, dilation=2, padding="same"), nn.Hardswish(), nn.Conv1d(8, 8, 3, groups=8), features=80),
    pairs((3, 12), (3,)),
)
program(
    "channel attention by AdaptiveMaxPool",
    images(nn.Conv2d(3, 8, 3), nn.AdaptiveMaxPool2d(1), nn.Conv2d(8, 4, 1), nn.Sigmoid(), features=4),
    IMAGES,
)
for size in (1, 2):
    program(
        f"channels last, pooled to {size}",  # as Swin's tokens are, and what channels_last makes of images
        lambda size=size: Forward(
            lambda m, x: m.head(
                torch.cat([m.line(m.own(x).transpose(1, 2)), m.image(x.view(4, 3, 3, 8).permute(0, 3, 1, 2))], 1)
            ),
            own=nn.Linear(8, 8),
            line=nn.Sequential(nn.AdaptiveAvgPool1d(size), nn.Flatten()),
            image=nn.Sequential(nn.AdaptiveAvgPool2d(size), nn.Flatten()),
            head=nn.Linear(8 * (size + size**2), 3),
        ),
        pairs((9, 8), (3,)),
    )
program("Bilinear", lambda: Forward(lambda m, x: m.own(x, x), own=nn.Bilinear(8, 8, 3)), ROWS)
program(
    "Conv3d", images(nn.Conv3d(2, 4, 3, padding=1), nn.MaxPool3d(2), nn.ReLU6(), features=32), pairs((2, 4, 4, 4), (3,))
)
program(
    "PixelShuffle between borders",
    lambda: nn.Sequential(
        nn.ReflectionPad2d(1), nn.Conv2d(3, 12, 3), nn.PixelShuffle(2), nn.Conv2d(3, 3, 3, padding=1)
    ),
    pairs((3, 4, 4), (3, 8, 8)),
)
program(
    "channels last",
    lambda: images(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), features=144)().to(
        memory_format=torch.channels_last
    ),
    lambda seed: (
        draw(BATCH, 3, 8, 8, seed=seed).to(memory_format=torch.channels_last),
        draw(BATCH, 3, seed=seed + 50),
    ),
)
for mode in ("nearest", "bilinear", "bicubic"):
    program(
        f"interpolate, {mode}",
        lambda mode=mode: Forward(
            lambda m, x: F.interpolate(m.own(x), scale_factor=2, mode=mode), own=nn.Conv2d(3, 3, 3, padding=1)
        ),
        pairs((3, 4, 4), (3, 8, 8)),
    )


def u_net(m, x):
    fine = F.relu(m.fine(x))
    coarse = F.relu(m.coarse(F.max_pool2d(fine, 2)))
    return m.head(torch.cat([m.up(coarse), fine], 1))


program(
    "U-Net",
    lambda: Forward(
        u_net, fine=nn.Conv2d(3, 4, 3, padding=1), coarse=nn.Conv2d(4, 8, 3, padding=1),
        up=nn.ConvTranspose2d(8, 4, 2, stride=2), head=nn.Conv2d(8, 3, 1),
    ),
    pairs((3, 8, 8), (3, 8, 8)),
)  # fmt: skip


def look(m, x):
    places = F.affine_grid(m.own(x.flatten(1)).reshape(BATCH, 2, 3), list(x.shape), align_corners=False)
    return F.grid_sample(x, places, align_corners=False).mean((2, 3))


program(
    "spatial transformer",
    lambda: Forward(look, own=nn.Linear(48, 6)),
    pairs((3, 4, 4), (3,)),
    undivided="aten.grid_sampler_2d_backward",
)

# ------------------------------------------------------------------------------------------- masks, scans, orders

program("where", linear(lambda m, x: torch.where(m.own(x) > 0, m.own(x), 0.01 * m.own(x))), ROWS)


def hide_future(m, x):
    y = m.own(x)
    seen = torch.tril(torch.ones(6, 6, dtype=torch.bool))
    return (y @ y.transpose(1, 2)).masked_fill(~seen, float("-inf")).softmax(-1) @ y


STEPS = pairs((5, 8), (5, 3))


def scan(m, x):
    return torch.logcumsumexp(m.own(x), 1) + torch.cumprod(torch.sigmoid(m.own(x)), 1)


def orders(m, x):
    y = m.own(x)
    return torch.sort(y, 1)[0] + y.max(1, keepdim=True).values * y.argmin(1, keepdim=True)


program("masked_fill", linear(hide_future), pairs((6, 8), (6, 3)))
program("cumsum", linear(lambda m, x: torch.cumsum(m.own(x), 1)), STEPS)
program("cumprod and logcumsumexp", linear(scan), STEPS)
program("sort and max", linear(orders), ROWS)
program("median", linear(lambda m, x: m.own(x).median(1).values[:, None] + x[:, :3]), ROWS, undivided="aten.median.dim")


def assign(m, x):
    y = m.own(x).clone()
    y[:, 0] = 0
    y[:, 1:] *= 2
    y[:, -1] += x[:, 0]
    y[y < -1] = 0.5
    y[x[:, 0] > 0.8] = 0.25
    return y


program("writing into slices and masks", linear(assign), ROWS)
program(
    "one_hot",
    linear(lambda m, x, i: m.own(x) * F.one_hot(i, 3)),
    lambda seed: (draw(BATCH, 8, seed=seed), whole(BATCH, high=3, seed=seed), draw(BATCH, 3, seed=seed + 50)),
)


def rearrange(m, x):
    y = m.own(x)
    return y.roll(1, 1) + y.flip(1) + y.repeat(1, 2)[:, ::2] + y.repeat_interleave(2, 1)[:, 1::2]


def contract(m, x):
    return torch.einsum("bij,jk,bik->bi", x, m.own, x @ m.own)


def decorrelate(m, x):
    y = m.own(x)
    spread = y.T @ y
    return y * torch.diag_embed(torch.diagonal(spread)).sum(0) + (spread - torch.diag(torch.diag(spread))).sum()


program("diagonals", linear(decorrelate), ROWS)
program("roll, flip, repeat", linear(rearrange), ROWS)
program("einsum", lambda: Forward(contract, own=draw(8, 8) * 0.1), pairs((3, 8), (3,)))
program("Fourier", linear(lambda m, x: torch.fft.irfft(torch.fft.rfft(m.own(x), dim=1) * 0.5, n=3, dim=1)), ROWS)

# ------------------------------------------------------------------------------------------- losses


def many_losses(output, target):
    classes = target.argmax(1)
    return (
        F.cross_entropy(output, classes, weight=torch.tensor([1.0, 2.0, 3.0]).double(), label_smoothing=0.1)
        + F.kl_div(F.log_softmax(output, 1), target.softmax(1), reduction="batchmean")
        + F.smooth_l1_loss(output, target)
        + F.huber_loss(output, target)
        + F.binary_cross_entropy_with_logits(output, target.sigmoid())
        + F.multi_margin_loss(output, classes)
        + F.triplet_margin_loss(output, target, -target)
        + F.poisson_nll_loss(output, target.abs())
        + F.cosine_embedding_loss(output, target, torch.ones(BATCH))
    )


program("many losses", linear(lambda m, x: m.own(x)), ROWS, many_losses)

# ------------------------------------------------------------------------------------------- random numbers

program("Dropout", lambda: nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 3)), ROWS)
program("other dropouts", images(nn.Conv2d(3, 4, 3), nn.Dropout2d(0.3), nn.SELU(), nn.AlphaDropout(0.2), features=144),
        IMAGES)  # fmt: skip
program("Gumbel noise", linear(lambda m, x: F.gumbel_softmax(m.own(x)) + 0.1 * torch.randn_like(m.own(x))), ROWS)


def autoencode(m, x):
    mean, scale = m.own(x).chunk(2, 1)
    return m.head(torch.distributions.Normal(mean, torch.exp(0.5 * scale)).rsample())


program("mixup", linear(lambda m, x: m.own(0.7 * x + 0.3 * x[torch.randperm(BATCH)])), ROWS)
program("torch.distributions", lambda: Forward(autoencode, own=nn.Linear(8, 8), head=nn.Linear(4, 3)), ROWS)

# ------------------------------------------------------------------------------------------- ways to write it


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * ctx.saved_tensors[0] * grad


class Running(nn.Module):
    """Keeps a mean in a buffer that it writes into."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Linear(8, 3)
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        y = self.own(x)
        self.mean.mul_(0.9).add_(0.1 * y.detach().mean(0))
        return y - self.mean


class Teacher(nn.Module):
    """A frozen copy that follows the trained weights: written into by the step, as BYOL's and a mean teacher's is."""

    def __init__(self, follow) -> None:
        super().__init__()
        self.own = nn.Linear(8, 3)
        self.slow = nn.Linear(8, 3).requires_grad_(False)
        self.follow = follow

    def forward(self, x):
        with torch.no_grad():
            self.follow(list(self.slow.parameters()), list(self.own.parameters()))
            wanted = self.slow(x)
        return self.own(x) * wanted


def follow_one_by_one(slow, fast):
    for old, new in zip(slow, fast, strict=True):
        old.data.mul_(0.9).add_(new, alpha=0.1)


def follow_at_once(slow, fast):
    torch._foreach_lerp_(slow, fast, 0.1)


def frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    model[0].requires_grad_(False)
    return model


program("autograd.Function", linear(lambda m, x: Square.apply(m.own(x))), ROWS)
program("a buffer of one's own", Running, ROWS)
program("a teacher", lambda: Teacher(follow_one_by_one), ROWS)
program("a teacher that follows at once", lambda: Teacher(follow_at_once), ROWS)
program("a frozen layer", frozen, ROWS)
program("a loop over columns", linear(lambda m, x: sum(m.own(part) for part in x.unbind(1))), pairs((5, 8), (3,)))
program("vmap", linear(lambda m, x: torch.vmap(m.own)(x)), ROWS)
program("torch.compile", lambda: torch.compile(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))), ROWS)
