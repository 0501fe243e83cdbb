"""The roofline: plain from a data sheet, and fitted to measurements whose truth is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import girih
from girih.cost.roofline import BYTE_SIZES, LEAST_FOR_RATES, Roofline, fit
from girih.cost.shares import data_sheet_roofline
from girih.cost.work import Work
from girih.machine import Device, Level, machine
from girih.machine.machine import unequal
from girih.ops.derive.kinds import CREATION, ELEMENTWISE, FUNCTION, MATMUL, VIEW
from girih.simulate.bounds import bound_of

CARD = Device("card", 1e12, 10**9, 1e11, 1e-6)
FLOPS, BANDWIDTH, LAUNCH = 2e11, 2e10, 5e-6


def truth(work: Work) -> float:
    arithmetic = work.operations / FLOPS if work.kind == MATMUL else 0.0
    return LAUNCH + max(arithmetic, work.bytes / BANDWIDTH)


def works() -> list[Work]:
    squares = [Work(MATMUL, "aten.mm", 2.0 * n**3, 12.0 * n**2) for n in (4, 16, 64, 100, 256, 500, 1024, 2048)]
    skinny = [Work(MATMUL, "aten.mm", 2.0 * 4 * n**2, 4.0 * n**2 + 32.0 * n) for n in (64, 300, 1024, 2000)]
    streams = [Work(ELEMENTWISE, "aten.add.Tensor", size / 12, size) for size in np.geomspace(1e3, 1e9, 15)]
    return [*squares, *skinny, *streams]


def test_plain() -> None:
    made = Roofline(CARD).seconds(
        [Work(MATMUL, "aten.mm", 1e12, 1e9), Work(ELEMENTWISE, "aten.add.Tensor", 1e6, 1e11), Work(VIEW, "v", 0, 0)]
    )
    assert made == pytest.approx([1 + 1e-6, 1 + 1e-6, 0])
    assert Roofline(CARD).seconds([]).shape == (0,)


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_known_parameters_are_recovered(noise: float) -> None:
    chance = np.random.default_rng(0)
    samples = [(work, truth(work) * float(np.exp(noise * chance.standard_normal()))) for work in works() for _ in "123"]
    made = fit(samples, CARD)
    assert made.device.flops_per_second == pytest.approx(FLOPS, rel=0.1 + 3 * noise)
    assert made.device.memory_bytes_per_second == pytest.approx(BANDWIDTH, rel=0.05 + noise)
    rates = dict(made.rates)
    assert rates[ELEMENTWISE].launch_seconds == pytest.approx(LAUNCH, rel=0.1 + noise)
    for size, share in rates[ELEMENTWISE].memory:
        if size >= BYTE_SIZES[2]:
            assert share * made.device.memory_bytes_per_second == pytest.approx(BANDWIDTH, rel=0.1 + noise)
    assert made.error is not None
    assert made.error.measurements == len(samples)
    assert made.error.median < 0.05 + noise
    assert made.error.median <= made.error.largest
    # What was not measured lies between.
    other = [Work(MATMUL, "aten.mm", 2.0 * n**3, 12.0 * n**2) for n in (128, 700, 1500)]
    assert made.seconds(other) == pytest.approx([truth(work) for work in other], rel=0.15 + 2 * noise)


def test_a_few_wild_measurements_change_little() -> None:
    samples = [(work, truth(work)) for work in works() for _ in "12345"]
    wild = [
        (work, 50 * seconds) if number % 7 == 0 else (work, seconds) for number, (work, seconds) in enumerate(samples)
    ]
    made = fit(wild, CARD)
    plain = np.asarray([truth(work) for work in works()])
    assert np.median(np.abs(made.seconds(works()) / plain - 1)) < 0.05


def test_caches_are_seen() -> None:
    """Rates that differ by size are kept apart."""

    def rate(size: float) -> float:
        return 1e11 if size < 1e6 else 1e10

    sizes = [2.0**power for power in (14, 15, 16, 17, 18, 23, 24, 25, 26, 27, 28)]
    samples = [
        (Work(ELEMENTWISE, f"op{number}", size, size), 1e-7 + size / rate(size)) for number, size in enumerate(sizes)
    ]
    made = fit(samples, CARD)
    small, large = made.seconds([Work(ELEMENTWISE, "other", 1, 2.0**16), Work(ELEMENTWISE, "other", 1, 2.0**27)])
    assert 2.0**16 / small == pytest.approx(1e11, rel=0.3)
    assert 2.0**27 / large == pytest.approx(1e10, rel=0.3)


def test_an_operator_that_was_measured_often_has_rates_of_its_own() -> None:
    """Slow in starting and slow in moving, unlike its kind."""
    sizes = np.geomspace(1e3, 1e8, LEAST_FOR_RATES)
    usual = [
        (Work(FUNCTION, f"aten.f{number}", 1, float(size)), 1e-6 + size / 1e10) for number, size in enumerate(sizes)
    ]
    slow = [(Work(FUNCTION, "aten.slow", 1, float(size)), 1e-4 + size / 2e9) for size in sizes]
    made = fit(usual + slow, CARD)
    assert "aten.slow" in dict(made.rates)
    asked = [Work(FUNCTION, "aten.slow", 1, 500.0), Work(FUNCTION, "aten.slow", 1, 1e7)]
    assert made.seconds(asked) == pytest.approx([1e-4, 1e-4 + 1e7 / 2e9], rel=0.3)


def test_one_measurement_moves_an_operator_halfway() -> None:
    usual = [(Work(FUNCTION, f"aten.f{number}", 1, 1e6), 1e-3) for number in range(9)]
    made = fit([*usual, (Work(FUNCTION, "aten.slow", 1, 1e6), 9e-3)], CARD)
    assert made.seconds([Work(FUNCTION, "aten.slow", 1, 1e6)])[0] == pytest.approx(3e-3, rel=0.05)


def test_kinds_that_were_not_measured_take_the_measured_peaks() -> None:
    made = fit([(work, truth(work)) for work in works()], CARD)
    assert not made.calibrated(Work(CREATION, "aten.full", 0, 1))
    assert made.calibrated(Work(MATMUL, "aten.bmm", 1, 1))
    assert made.seconds([Work(CREATION, "aten.full", 0, 1e9)])[0] == pytest.approx(1e9 / BANDWIDTH, rel=0.1)


def test_without_measurements_it_is_plain() -> None:
    assert fit([], CARD) == Roofline(CARD)


def test_efficiencies_are_lent_to_another_device() -> None:
    half = [
        (Work(MATMUL, "aten.mm", 2.0 * n**3, 12.0 * n**2), 1e-6 + 2.0 * n**3 / 1e11) for n in (256, 512, 1024, 2048)
    ]
    streams = [(Work(ELEMENTWISE, "aten.add.Tensor", size / 12, size), 1e-6 + size / 1e10) for size in (1e6, 1e8, 1e9)]
    made = fit([*half, *streams], CARD)
    other = machine("dgx-h100").device
    moved = made.on(other)
    product = moved.seconds([Work(MATMUL, "aten.mm", 2.0 * 2048**3, 1.0)])[0]
    assert product == pytest.approx(other.launch_seconds + 2.0 * 2048**3 / other.flops_per_second, rel=0.1)
    assert moved.device is other


def test_products_of_other_dtypes_have_rates_of_their_own() -> None:
    card = replace(CARD, rates=[["bfloat16", 4e12]])  # as JSON gives them
    one = [Work(MATMUL, "aten.mm", 1e12, 0.0, dtype) for dtype in ("float32", "bfloat16", "float64")]
    assert Roofline(card).seconds(one) == pytest.approx([1.0, 0.25, 1.0], rel=1e-5)
    slow = unequal("two", [(card, 1), (replace(CARD, flops_per_second=2e12), 1)], (Level("bus", (2,), 1e9, 1e-5),))
    assert (slow.device.flops("float32"), slow.device.flops("bfloat16")) == (1e12, 2e12)


@pytest.mark.parametrize(("size", "seconds"), [(2048, 24.3e-6), (4096, 175.7e-6), (16384, 12576e-6)])
def test_presets_of_cards_that_were_measured_reach_what_was_measured(size: int, seconds: float) -> None:
    """An H200's products in bfloat16, as `python -m benchmarks.gpu_rates` saw them; its data sheet says less."""
    work = Work(MATMUL, "aten.mm", 2.0 * size**3, 6.0 * size**2, "bfloat16")
    made = data_sheet_roofline(machine("dgx-h200").device).seconds([work])[0]
    assert made == pytest.approx(seconds, rel=0.15)
    assert Roofline(machine("dgx-h200").device).seconds([work])[0] < 0.9 * seconds


def test_bounds_hold_where_sixteen_bits_are_faster() -> None:
    bounds = []
    for dtype in (torch.float32, torch.bfloat16):
        layer = torch.nn.Linear(8192, 8192, bias=False, device="meta", dtype=dtype)
        x = torch.empty(8192, 8192, dtype=dtype, device="meta")
        plan = girih.plan(girih.Inference(layer), x, machine="dgx-h200", search="single", objective="bytes", compare=())
        bounds.append(bound_of(plan.graph, plan.machine).seconds)
        assert 8 * bounds[-1] <= plan.predict().seconds
    assert bounds[1] < 0.6 * bounds[0]


def test_cards_are_known_by_the_names_that_pytorch_has_for_them() -> None:
    device = machine("dgx-h100").device
    for name in ("H100", "NVIDIA H100 80GB HBM3"):
        assert data_sheet_roofline(replace(device, name=name)).rates
    assert not data_sheet_roofline(replace(device, name="A100")).rates
