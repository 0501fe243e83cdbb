"""How fast a GPU computes and copies by size and dtype, beside its data sheet: where the shares of `girih.cost.shares`
come from.

What: products of square matrices (float32 exactly and as TF32, bfloat16, float16, 8-bit floats where the card has
them), products of batches as attention has them, element-wise operations, copies and sums by bytes, copies between the
card and pinned memory of the host by bytes, and the smallest call. How: CUDA events around so many calls as take 20 ms,
the median of `--repeats` rounds, numbers at random (of zeros a card computes faster), operands that no cache holds
where they are large. Printed beside each: its share of the data sheet's rate. Where there is no GPU nothing is
measured, and it says so.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.common import Benchmark, Report, Row, note, repeats_option

PEAKS = {
    "NVIDIA H100 80GB HBM3": {
        "float32": 66.9e12, "tf32": 494.7e12, "bfloat16": 989.4e12, "float16": 989.4e12, "float8": 1978.9e12,
        "memory": 3.35e12,
    },
    "NVIDIA H200": {
        "float32": 66.9e12, "tf32": 494.7e12, "bfloat16": 989.4e12, "float16": 989.4e12, "float8": 1978.9e12,
        "memory": 4.8e12,
    },
}  # fmt: skip
"""NVIDIA's data sheets, dense."""
ROUND = 0.02  # seconds


def seconds(call: Callable[[], Any], repeats: int) -> float:
    """Of one call, one after the other."""
    import torch

    def timed(count: int) -> float:
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(count):
            call()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop)) / 1000 / count

    for _ in range(3):
        call()
    count = max(3, min(2000, round(ROUND / max(timed(3), 1e-7))))
    return statistics.median(timed(count) for _ in range(repeats))


def products(sizes: list[int], repeats: int) -> Iterator[Row]:
    import torch

    for name in ("float32", "tf32", "bfloat16", "float16", "float8"):
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        for size in sizes:
            dtype = torch.float32 if name in ("float32", "tf32") else getattr(torch, name, torch.bfloat16)
            a, b = (torch.randn(size, size, device="cuda").to(dtype) for _ in range(2))
            call: Callable[[], Any] = lambda a=a, b=b: a @ b  # noqa: E731
            if name == "float8":
                eight, one = torch.float8_e4m3fn, torch.ones((), device="cuda")
                a, b = a.to(eight), b.to(eight).t()
                call = lambda a=a, b=b, one=one: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16)  # noqa: E731
            try:
                took = seconds(call, repeats)
            except RuntimeError as error:
                print(f"{name} {size}: {str(error).splitlines()[0]}")
                break
            yield {"what": "product", "dtype": name, "size": 2.0 * size**3, "seconds": took}
    torch.backends.cuda.matmul.allow_tf32 = False


def batches(repeats: int, quick: bool) -> Iterator[Row]:
    """q·kᵀ of 16 heads of 128, and attention as one operator, forward and backward."""
    import torch
    import torch.nn.functional as F

    for length in (256, 1024) if quick else (256, 1024, 4096):
        for name in ("tf32", "bfloat16"):
            torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
            dtype = torch.float32 if name == "tf32" else torch.bfloat16
            q, k, v = (torch.randn(64, length, 128, device="cuda", dtype=dtype) for _ in range(3))
            took = seconds(lambda q=q, k=k: torch.bmm(q, k.transpose(1, 2)), repeats)
            yield {"what": "batched product", "dtype": name, "size": 2.0 * 64 * 128 * length**2, "seconds": took}
            heads = [item.view(4, 16, length, 128).requires_grad_() for item in (q, k, v)]
            took = seconds(lambda heads=heads: F.scaled_dot_product_attention(*heads, is_causal=False), repeats)
            yield {"what": "attention", "dtype": name, "size": 4.0 * 64 * 128 * length**2, "seconds": took}
            result = F.scaled_dot_product_attention(*heads, is_causal=False)
            ones = torch.ones_like(result)
            took = seconds(lambda r=result, h=heads, o=ones: torch.autograd.grad(r, h, o, retain_graph=True), repeats)
            yield {"what": "attention backward", "dtype": name, "size": 10.0 * 64 * 128 * length**2, "seconds": took}


def traffic(powers: range, repeats: int) -> Iterator[Row]:
    import torch

    for power in powers:
        size = 1 << power
        x = torch.randn(size // 4, device="cuda")
        y = torch.empty_like(x)
        rows = x.view(-1, min(1024, size // 4))
        half = x.bfloat16()
        for what, call, moved in (
            ("copy", lambda x=x, y=y: y.copy_(x), 2 * size),
            ("add", lambda x=x, y=y: torch.add(x, 1.0, out=y), 2 * size),
            ("relu bfloat16", lambda h=half: torch.relu(h), size),
            ("sum", lambda r=rows: r.sum(1), size),
            ("softmax", lambda r=rows: torch.softmax(r, 1), 2 * size),
            ("transpose", lambda r=rows: r.t().contiguous(), 2 * size),
        ):
            yield {"what": what, "dtype": "memory", "size": float(moved), "seconds": seconds(call, repeats)}


def host(powers: range, repeats: int) -> Iterator[Row]:
    import torch

    for power in powers:
        here = torch.empty(1 << power, dtype=torch.uint8, pin_memory=True)
        there = torch.empty(1 << power, dtype=torch.uint8, device="cuda")
        for what, call in (
            ("to host", lambda a=here, b=there: a.copy_(b, non_blocking=True)),
            ("from host", lambda a=here, b=there: b.copy_(a, non_blocking=True)),
        ):
            yield {"what": what, "dtype": "host", "size": float(1 << power), "seconds": seconds(call, repeats)}


def measure(options: argparse.Namespace) -> Report:
    import torch

    columns = (
        ("what", "what"), ("dtype", "dtype"), ("operations or bytes", "size"), ("seconds", "seconds"),
        ("rate / s", "rate"), ("share of the data sheet", "share"),
    )  # fmt: skip
    if not torch.cuda.is_available():
        return Report("rates of a GPU", columns, (), "there is no GPU here: nothing was measured")
    name = torch.cuda.get_device_name()
    peaks, quick, repeats = PEAKS.get(name, {}), options.quick, options.repeats
    small = torch.ones(8, device="cuda")
    launch = seconds(lambda: small.add_(1.0), repeats)
    rows = [{"what": "smallest call", "dtype": "", "size": 1.0, "seconds": launch}]
    parts = (
        products([128, 1024, 4096] if quick else [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384], repeats),
        batches(repeats, quick),
        traffic(range(16, 31, 7) if quick else range(12, 33, 2), repeats),
        host(range(16, 31, 7) if quick else range(12, 31, 3), repeats),
    )
    for part in parts:
        for row in part:
            row["rate"] = row["size"] / row["seconds"]
            row["share"] = row["rate"] / peaks[row["dtype"]] if row["dtype"] in peaks else None
            note(row)
            rows.append(row)
    best = max(rows, key=lambda row: row.get("share") or 0.0)
    summary = (
        f"{name}, torch {torch.__version__}: a call {launch * 1e6:.2f} µs; best share {best.get('share') or 0:.0%}"
    )
    return Report(f"rates of {name}", columns, tuple(rows), summary)


BENCHMARK = Benchmark("gpu_rates", __doc__ or "", measure, 0.0, "nothing: it has no floor", repeats_option)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
