"""The demo: two models whose training step does not fit one device, trained on four.

    make demo

For a Wide ResNet and a Llama, both written for one device, it

1. shows that one device and data parallelism need more memory than each device has,
2. plans the step over four devices under that limit, with a proof that no plan communicates less,
3. trains for three steps on four real processes, and compares the loss and every updated tensor of each step with
   those of the undivided program, which runs beside them in this process without the limit.

The exit code is 0 if all of them agree, 1 if one differs, 2 if a plan does not come out as expected.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

import girih
from girih.models import llama, wide_resnet
from girih.report.tables import summary

MACHINE = "local:4"
STEPS = 3
BATCH = 4
PLANS = Path("build/demo")
WITHOUT_A_SEARCH = {"single": "one device", "data": "data parallelism on 4"}


class DemoError(Exception):
    """The demo cannot show what it is there to show."""


@dataclass(frozen=True)
class Case:
    """A model with its training step, a maker of batches, and the limit for each device."""

    title: str
    about: str
    file: str
    memory: str
    step: girih.TrainingStep
    batch: Callable[[int], Any]


def wide_resnet_case() -> Case:
    """In float64: a fresh ResNet amplifies rounding, so that in float32 there is less to compare."""
    torch.manual_seed(0)
    model = wide_resnet(26, width=2, image=24, classes=100, blocks=(2, 2, 2, 2)).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)

    def batch(number: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(number)
        images = torch.randn(BATCH, 3, 24, 24, generator=generator, dtype=torch.float64)
        return images, torch.randint(100, (BATCH,), generator=generator)

    step = girih.TrainingStep(model, loss=F.cross_entropy, optimizer=optimizer)
    return Case(
        "Wide ResNet 26-2", "images of 24×24, float64, SGD with momentum", "wide-resnet.json", "600MB", step, batch
    )


def transformer_case() -> Case:
    """With the optimizer of Touvron et al. 2023, section 2.3."""
    torch.manual_seed(0)
    model = llama(layers=6, width=768, heads=12, kv_heads=4, hidden=2048, vocabulary=8192)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), eps=1e-5, weight_decay=0.1)

    def next_token(model: Any, batch: Any) -> torch.Tensor:
        tokens, targets = batch
        return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())

    def batch(number: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(number)
        text = torch.randint(8192, (BATCH, 65), generator=generator)
        return text[:, :-1].contiguous(), text[:, 1:].contiguous()

    step = girih.TrainingStep(model, step=next_token, optimizer=optimizer, clip_grad_norm=1.0)
    return Case("Llama of 6 layers", "float32, 64 tokens, AdamW", "llama.json", "400MB", step, batch)


def show_case(case: Case, console: Console) -> bool:
    """Refuse, plan, train; True if all that was computed agrees."""
    parameters = sum(item.numel() for item in case.step.model.parameters())
    console.print()
    console.print(
        Rule(
            f"[bold]{case.title}[/]: {parameters / 1e6:.1f} million parameters, batch {BATCH}, {case.about}",
            align="left",
        )
    )
    show_refusals(case, console)
    plan = make_plan(case, console)
    return train(case, plan, console)


def show_refusals(case: Case, console: Console) -> None:
    console.print(
        f"\n[bold]1.[/] Each device may use {case.memory}. Without dividing the operators, nor moving tensors out:\n"
    )
    for search, name in WITHOUT_A_SEARCH.items():
        with console.status(f"{name}: how much memory does the step need?"):
            try:
                girih.plan(
                    case.step,
                    case.batch(0),
                    machine=MACHINE,
                    memory=case.memory,
                    search=search,
                    objective="bytes",
                    compare=(),
                    hold="none",
                )  # to move tensors out and back would be slow
            except girih.PlanError as refusal:
                message = str(refusal)
            else:
                raise DemoError(f"{name} fits {case.memory}: the demo expects that it does not")
        console.print(Padding(Text.assemble((f"{name}: ", "bold red"), message), (0, 0, 0, 3)))


def make_plan(case: Case, console: Console) -> girih.Plan:
    console.print("\n[bold]2.[/] Every operator and tensor divided over 4 devices, so that least is communicated:\n")
    began = time.perf_counter()
    with console.status("capture") as status:
        plan = girih.plan(
            case.step,
            case.batch(0),
            machine=MACHINE,
            memory=case.memory,
            objective="bytes",
            observe=lambda what, share: status.update(f"plan: {what}" + (f" {share:.0%}" if share else "")),
        )
    plan = plan.but(model=case.title)
    PLANS.mkdir(parents=True, exist_ok=True)
    plan.save(PLANS / case.file)
    console.print(Padding(summary(plan), (0, 0, 0, 3)))
    console.print(f"\n   captured, planned and compared in {time.perf_counter() - began:.1f} s", highlight=False)
    return plan


def train(case: Case, plan: girih.Plan, console: Console) -> bool:
    """Train; True if every step and the bytes that were exchanged are as they should be."""
    console.print(
        f"\n[bold]3.[/] {STEPS} steps on 4 processes; each beside the undivided program, which runs in this process "
        "without the limit:\n"
    )
    row = "   {:>4}  {:>11}  {:>11}  {:<50}  {}"
    console.print(row.format("step", "loss on 4", "loss on 1", "tensor that differs most", ""), style="bold")
    agree, largest = True, 0.0
    began = time.perf_counter()
    with console.status("start 4 workers") as status, plan.start() as running:
        for number in range(STEPS):
            status.update(f"step {number + 1} of {STEPS}, divided and undivided")
            seen = running.verified_step(*case.batch(number))
            agree &= seen.ok
            largest = max(largest, abs(seen.loss - seen.undivided))
            tensor = f"{seen.worst} by {seen.absolute:.1e}"
            verdict = "[green]same[/]" if seen.ok else "[bold red]DIFFERENT[/]"
            console.print(
                row.format(running.steps, f"{seen.loss:.8f}", f"{seen.undivided:.8f}", tensor, verdict), highlight=False
            )
        received = [int(item.bytes_received) for item in running.statistics()]
    planned = [int(amount) * STEPS for amount in plan.bytes_received]
    exact = received == planned
    verdict = "[green]equal on every device[/]" if exact else "[bold red]they differ[/]"
    console.print(
        f"\n   largest difference of a loss: {largest:.1e}\n"
        f"   bytes between the processes: {sum(received):,} measured, {sum(planned):,} planned ({verdict})\n"
        f"   {time.perf_counter() - began:.1f} s",
        highlight=False,
    )
    return agree and exact


CASES = (wide_resnet_case, transformer_case)


def main() -> int:
    console = Console(width=None if sys.stdout.isatty() else 120)
    began = time.perf_counter()
    console.print(
        f"[bold]girih[/] {girih.__version__}: training steps that do not fit one device, divided over four processes "
        "of this machine"
    )
    agree = True
    for make in CASES:
        with console.status("make the model"):
            case = make()
        try:
            agree &= show_case(case, console)
        except (DemoError, girih.PlanError) as error:
            console.print(f"[bold red]the demo stops:[/] {error}")
            return 2
    console.print()
    console.print(Rule())
    verdict = "[bold green]every loss and tensor agrees[/]" if agree else "[bold red]the results differ[/]"
    console.print(f"{verdict}; {time.perf_counter() - began:.0f} s in all", highlight=False)
    console.print(f"the plans are {PLANS}/*.json; to look at one: .venv/bin/girih show {PLANS}/llama.json --operators")
    return 0 if agree else 1


if __name__ == "__main__":
    raise SystemExit(main())
