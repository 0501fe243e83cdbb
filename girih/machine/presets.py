"""Machines by name: those of the papers and today's, with the source of every number.

Latencies are nowhere on data sheets: those here are usual for the transport (NVLink and PCIe peer to peer 10 to 20 µs
with the call, Infiniband 20 µs, TCP 100 µs) and are ours. Bandwidths are one way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from girih.machine.machine import Device, Level, Machine, Tier

GB = 10**9
GBIT = 1e9 / 8
TCP = 0.94  # of the wire's rate: gloo sent at 92 to 95 % of 100, 200, 500 and 1000 Mbit/s when traffic was shaped


@dataclass(frozen=True)
class Preset:
    """growing: the outermost level is a network, and may have any number of hosts."""

    machine: Machine
    growing: bool = False


def _halves(rate: float) -> tuple[tuple[str, float], ...]:
    """Of both dtypes of 16 bits, added up in float32, without sparsity."""
    return ("bfloat16", rate), ("float16", rate)


K80 = Device("K80", 2.8e12, 12 * GB, 240e9, 10e-6)
TITAN_X = Device("TITAN X", 6.1e12, 12 * GB, 336.5e9, 10e-6)
P100 = Device("P100", 10.6e12, 16 * GB, 732e9, 8e-6)
V100 = Device("V100", 15.7e12, 16 * GB, 900e9, 5e-6, (("float16", 125e12),))
T4 = Device("T4", 8.1e12, 16 * GB, 320e9, 5e-6, (("float16", 65e12),))
A100 = Device("A100", 156e12, 80 * GB, 2.0e12, 4e-6, _halves(312e12))
H100 = Device("H100", 495e12, 80 * GB, 3.35e12, 4e-6, (*_halves(989e12), ("float8_e4m3fn", 1979e12)))
H200 = Device("H200", 495e12, 141 * GB, 4.8e12, 4e-6, (*_halves(989e12), ("float8_e4m3fn", 1979e12)))
RTX_3090 = Device("RTX 3090", 35.6e12, 24 * GB, 936e9, 5e-6, _halves(71e12))
RTX_4090 = Device("RTX 4090", 82.6e12, 24 * GB, 1008e9, 4e-6, _halves(165.2e12))
EPYC = Device("EPYC 7302", 1.5e12, 128 * GB, 204.8e9, 5e-6)

P3_HOST = Tier("host memory over PCIe", 61 * GB, 12e9, 12e9, 20e9)
TITAN_X_HOST = Tier("host memory over PCIe", 64 * GB, 12e9, 12e9)

DEVICES = {item.name: item for item in (K80, TITAN_X, P100, V100, T4, A100, H100, H200, RTX_3090, RTX_4090, EPYC)}

K80_SOURCE = "half a K80 board (one GK210): NVIDIA's data sheet, base clock, 12 GB, 240 GB/s"
P100_SOURCE = "P100 SXM2: NVIDIA's data sheet, 10.6 TFLOP/s, 16 GB, 732 GB/s"
V100_SOURCE = "V100 SXM2 16 GB: NVIDIA's data sheet, 15.7 TFLOP/s, 900 GB/s"
CARD_SOURCE = "NVIDIA's data sheet of the card"
EPYC_SOURCE = (
    "AMD's data sheet: 16 cores at 3.0 GHz with 32 FLOP a cycle (AVX2, float32), 8 channels DDR4-3200, 204.8 GB/s; "
    "128 GB is an assumption"
)
HGX_SOURCE = (
    "SXM 80 GB (TF32 without sparsity; numbers of 16 bits twice that; shares of it by size as measured on an H200 with "
    "PyTorch 2.11); NVLink 4 at 900 GB/s both ways, derated from 450 to 300 one way"
)

_NVLINK = 300e9
_NETWORK = 400 * GBIT  # for each device, as in rail-optimised clusters


def _preset(
    name: str, device: Device, levels: tuple[Level, ...], source: str, host: Tier | None = None, growing: bool = False
) -> Preset:
    return Preset(Machine(name, device, levels, source, host=host), growing)


def _ethernet(rate: str, gigabits: int) -> Preset:
    level = Level(f"{rate} Ethernet", (2, 2), TCP * gigabits * GBIT, 100e-6, shared=True)
    wire = f"{gigabits} Gbit/s Ethernet, TCP at {TCP:.0%} of it by our measurement"
    source = f"{EPYC_SOURCE}; one process on each host; {wire}"
    return _preset(f"cpu-{gigabits}g", EPYC, (level,), source, growing=True)


def _cards(name: str, card: Device, year: str) -> Preset:
    source = (
        f"{CARD_SOURCE} ({year}); PCIe 4.0 ×16 at 31.5 GB/s; GeForce cards have no peer-to-peer access, so that each "
        "byte goes through the host's memory: half"
    )
    return _preset(name, card, (Level("PCIe", (2, 2), 15.75e9, 20e-6),), source)


@cache
def all_presets() -> dict[str, Preset]:
    """By name: the papers' machines, then today's."""
    presets = (
        _preset(
            "p2.8xlarge",
            K80,
            (Level("PCIe", (2, 4), 21e9, 20e-6),),
            f"Tofu §7.1: 8 K80 of 12 GB, 21 GB/s peer to peer; {K80_SOURCE}",
        ),
        _preset(
            "p100-cluster",
            P100,
            (
                Level("Infiniband EDR", (4,), 100 * GBIT, 20e-6, shared=True),
                Level("NVLink", (2, 2), 60e9, 10e-6),
            ),
            "FlexFlow Fig. 3.5: 4 nodes of 4 P100, NVLink inside, 100 Gbit/s EDR Infiniband shared by the node; "
            f"{P100_SOURCE}; NVLink 1: 20 GB/s one way on a link (data sheet), one link to each of three peers",
            growing=True,
        ),
        _preset(
            "k80-cluster",
            K80,
            (
                Level("Infiniband", (16,), 56 * GBIT, 20e-6, shared=True),
                Level("shared PCIe switch", (2,), 12e9, 20e-6, shared=True),
                Level("PCIe switch of a pair", (2,), 12e9, 20e-6),
            ),
            "FlexFlow Fig. 3.5: 16 nodes of 4 K80, adjacent pairs on a separate PCIe switch, all through a shared "
            f"PCIe switch, 56 Gbit/s Infiniband; {K80_SOURCE}; PCIe 3.0 ×16: 15.75 GB/s by the standard, about 12 "
            "in use",
            growing=True,
        ),
        _preset(
            "summit",
            V100,
            (
                Level("Infiniband EDR", (4,), 100 * GBIT, 20e-6, shared=True),
                Level("X-bus", (2,), 32e9, 15e-6, shared=True),
                Level("NVLink", (3,), 100e9, 10e-6),
            ),
            "ROC's evaluation: Summit nodes of 6 V100 with NVLink, 100 Gbit/s EDR Infiniband; inside a node, by "
            "the Summit user guide: three GPUs at each of two CPUs, NVLink 2 at 50 GB/s one way to each of two "
            f"neighbours, X-bus between the CPUs at 64 GB/s both ways; {V100_SOURCE}",
            growing=True,
        ),
        _preset(
            "p3.2xlarge",
            V100,
            (),
            f"SwapAdvisor's and TASO's evaluations: Amazon p3.2xlarge, one V100; {V100_SOURCE}; host memory as "
            "SwapAdvisor §5.1 says: 61 GB, PCIe at 12 GB/s one way and 20 GB/s both ways",
            host=P3_HOST,
        ),
        _preset(
            "p3.8xlarge",
            V100,
            (),
            "SwapAdvisor's evaluation of what needs more than 61 GB of host memory: Amazon p3.8xlarge, one of its "
            f"V100 and all of its 244 GB; {V100_SOURCE}; PCIe as of p3.2xlarge",
            host=replace(P3_HOST, memory_bytes=244 * GB),
        ),
        _preset(
            "titanx-cluster",
            TITAN_X,
            (Level("10 Gbit Ethernet", (2, 2), TCP * 10 * GBIT, 100e-6, shared=True),),
            "nodes of one GeForce GTX TITAN X (Maxwell): NVIDIA's data sheet, 12 GB, 336.5 GB/s, 6.1 TFLOP/s at "
            f"base clock; 10 Gbit/s Ethernet between them is an assumption, TCP at {TCP:.0%} of it; host memory of "
            "64 GB as TensorFlowMem §6.4 says, PCIe 3.0 ×16 at about 12 GB/s",
            host=TITAN_X_HOST,
            growing=True,
        ),
        _preset(
            "titanx-40g",
            TITAN_X,
            (Level("40 Gbit Ethernet", (2, 2), TCP * 40 * GBIT, 100e-6, shared=True),),
            "TensorFlowMem §6.4: nodes of one Titan X with 12 GB and 64 GB of host memory, 40 Gbit/s Ethernet; TCP "
            f"at {TCP:.0%} of it; device and PCIe as of titanx-cluster",
            host=TITAN_X_HOST,
            growing=True,
        ),
        _preset(
            "dgx-v100",
            V100,
            (Level("NVLink", (2, 4), 150e9, 10e-6),),
            f"{V100_SOURCE}; NVLink 2 at 300 GB/s both ways",
        ),
        _preset(
            "dgx-h100", H100, (Level("NVLink", (2, 4), _NVLINK, 10e-6),), f"NVIDIA's data sheets: H100 {HGX_SOURCE}"
        ),
        _preset(
            "dgx-h200",
            H200,
            (Level("NVLink", (2, 4), _NVLINK, 10e-6),),
            f"NVIDIA's data sheets: H200 with 141 GB at 4.8 TB/s, else as H100 {HGX_SOURCE}",
        ),
        _preset(
            "h100-cluster",
            H100,
            (Level("Infiniband NDR", (4,), _NETWORK, 20e-6), Level("NVLink", (2, 4), _NVLINK, 10e-6)),
            f"NVIDIA's data sheets: DGX H100, H100 {HGX_SOURCE}; one 400 Gbit/s NDR port for each GPU",
            growing=True,
        ),
        _cards("rtx-3090", RTX_3090, "Ampere, 2020"),
        _cards("rtx-4090", RTX_4090, "Ada, 2022"),
        _ethernet("1 Gbit", 1),
        _ethernet("10 Gbit", 10),
        _ethernet("100 Gbit", 100),
    )
    return {item.machine.name: item for item in presets}


def presets() -> dict[str, Machine]:
    """Machines by name; every number's source is in `source`."""
    return {name: item.machine for name, item in all_presets().items()}
