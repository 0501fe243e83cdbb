"""`girih run`: train by a plan on random data, beside the undivided program where asked."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from girih.api import Plan
from girih.cli.predicting import measured_beside, store_path
from girih.cli.programs import exactly, is_file, program, random_batch
from girih.cli.terminal import BadInputError, check_output, clear_errors
from girih.machine.units import format_bytes
from girih.ops.gate import is_exact
from girih.plans.predict import opened
from girih.run.engines.engine import check_launched, engine_of
from girih.run.engines.launcher import launched_rank

if TYPE_CHECKING:
    from girih.run.training.training import Comparison


def check_options(options: argparse.Namespace) -> None:
    """Raises BadInputError for what could only fail later."""
    try:
        check_launched(engine_of(options.backend))
    except ValueError as error:
        raise BadInputError(str(error)) from error
    if options.measure:
        with clear_errors(), opened(store_path(options.store)):
            pass
    if options.save is not None:
        from girih.run.training.saving import check_goal

        check_output(options.save, folder=True)
        with clear_errors():
            check_goal(Path(options.save))


def run_plan(plan: Plan, options: argparse.Namespace, progress: Callable[[str, float], None]) -> int:
    """Run the steps, print the losses; exit code 1 if a verification fails."""
    if is_exact(plan.graph):
        return _run_exactly(plan, options, progress)
    own = launched_rank()
    rank = 0 if own is None else own.rank
    losses: list[dict[str, Any]] = []
    given, own_batch = _given(options)
    progress("start workers", 0.0)
    with plan.start(
        backend=options.backend,
        resume=options.resume,
        seed=options.seed,
        timeout=options.timeout,
        measure=options.measure,
        arena=options.arena,
        device=options.device,
        **given,
    ) as running:
        for number in range(options.steps):
            progress(f"step {number + 1} of {options.steps}", number / options.steps)
            seed = (options.seed * 1_000_003 + running.steps) % 2**63
            batch = random_batch(plan, seed) if own_batch is None else own_batch
            row: dict[str, Any] = {"step": running.steps + 1}
            if options.verify:
                row.update(vars(running.verified_step(batch, lr=options.lr)))
            else:
                outcome = running.step(batch, lr=options.lr)
                row["loss"] = outcome if isinstance(outcome, float) else None
            losses.append(row)
            if not options.json and rank == 0:
                print(_line(row), flush=True)
        if options.save:
            progress("save", 0.0)
            running.save(options.save)
        measured = running.timeline() if options.measure else None
        statistics = _statistics(running)
    if rank == 0:
        beside: dict[str, Any] = {}
        if measured is not None:
            beside, lines = measured_beside(plan, measured, options)
        if options.json:
            print(json.dumps({"steps": losses, "statistics": statistics, **beside}, default=str))
        else:
            print("\n".join([*_closing(plan, statistics, options), *(lines if measured is not None else ())]))
    return 0 if all(row.get("ok", True) for row in losses) else 1


def _statistics(running: Any) -> list[dict[str, Any]]:
    return [
        {
            "rank": item.rank,
            "bytes_received": item.bytes_received,
            **vars(item.times),
            "arena": None if item.arena is None else vars(item.arena),
            "without": item.without,
        }
        for item in running.statistics()
    ]


def _run_exactly(plan: Plan, options: argparse.Namespace, progress: Callable[[str, float], None]) -> int:
    """Run the steps of a plan that has PyTorch's own bits, as `girih.fit` does, since the optimizer's own code computes
    at each step. To verify, plain PyTorch takes the same steps, and every bit is compared."""
    import torch

    from girih.capture.torch.training import loss_of
    from girih.plans.inputs import program_of
    from girih.run.training.fit import Fit

    _check_exactly(options)

    def built() -> Any:
        torch.manual_seed(options.seed)  # of weights
        return exactly(program(options.program))

    named = built()
    own = program_of(named.step, named.batch, named.name)
    if own.graph != plan.graph:
        raise BadInputError(
            f"{options.plan} is not a plan of {options.program} as it is now: plan that again, with --exact"
        )
    plain = built().step if options.verify else None
    losses: list[dict[str, Any]] = []
    progress("start the worker", 0.0)
    with Fit(lambda *_: (own.in_plan(plan), own), named.step, named.batch, "threads") as train:
        for number in range(options.steps):
            progress(f"step {number + 1} of {options.steps}", number / options.steps)
            drawn = torch.get_rng_state()
            row: dict[str, Any] = {"step": number + 1, "loss": float(loss_of(train(named.batch)))}
            if plain is not None:
                torch.set_rng_state(drawn)
                row.update(vars(_beside_pytorch(plain, named.batch, row["loss"], train.module)))
            losses.append(row)
            if not options.json:
                print(_line(row), flush=True)
        statistics = _statistics(train.run)
    if options.json:
        print(json.dumps({"steps": losses, "statistics": statistics}, default=str))
    else:
        print("\n".join(_closing(plan, statistics, options)))
    return 0 if all(row.get("ok", True) for row in losses) else 1


def _check_exactly(options: argparse.Namespace) -> None:
    """Raises BadInputError for what a plan with PyTorch's bits does not run with."""
    if options.program is None or not is_file(options.program):
        raise BadInputError(
            f"{options.plan} was made with --exact, so that the optimizer's own code computes at each step: give "
            "--program FILE.py:FUNCTION, of which it was made"
        )
    given = {name: getattr(options, name) for name in ("lr", "save", "resume", "measure", "device")}
    others = [f"--{name}" for name, value in given.items() if value]
    others += ["--arena"] if options.arena != "auto" else []
    others += [f"--backend {options.backend}"] if options.backend not in ("threads", "processes") else []
    if others:
        raise BadInputError(
            f"{options.plan} was made with --exact, whose worker is a thread of this process, with the weights and the "
            f"optimizer of --program: leave {', '.join(others)} out"
        )


def _beside_pytorch(step: Any, batch: Any, loss: float, ours: Any) -> Comparison:
    """The same step by plain PyTorch, of a program that was built anew, beside the loss and the model of ours: equal to
    the bit, or not."""
    import torch
    from torch.nn.utils import clip_grad_norm_, clip_grad_value_

    from girih.capture.torch.training import loss_of
    from girih.run.training.training import Comparison

    updated: list[bool] = []
    hook = step.optimizer.register_step_post_hook(lambda *_: updated.append(True))
    step.optimizer.zero_grad()
    with nullcontext() if step.autocast is None else torch.autocast("cpu", step.autocast):
        given = loss_of(step.forward(step.model, batch))
    if not updated:  # the program's own step does not do that
        given.backward()
        if step.clip_grad_norm is not None:
            clip_grad_norm_(step.model.parameters(), step.clip_grad_norm)
        if step.clip_grad_value is not None:
            clip_grad_value_(step.model.parameters(), step.clip_grad_value)
        step.optimizer.step()
    hook.remove()
    expected = float(given.detach())
    theirs, far = step.model.state_dict(), {}
    for key, tensor in ours.state_dict().items():
        if not torch.equal(tensor, theirs[key]):
            apart = (tensor.double() - theirs[key].double()).abs().max()
            far[key] = float(apart), float(apart / theirs[key].double().abs().max())
    worst = max(far, key=lambda key: far[key][0], default="")
    return Comparison(loss, expected, worst, *far.get(worst, (0.0, 0.0)), not far and loss == expected)


def _given(options: argparse.Namespace) -> tuple[dict[str, Any], Any]:
    """(What `Plan.start` takes of --program, its batch or None), without it nothing."""
    if options.program is None:
        return {}, None
    if not is_file(options.program):
        raise BadInputError(f"--program {options.program}: expected FILE.py:FUNCTION; models have random weights")
    own = program(options.program)
    if hasattr(own.batch, "with_model"):  # data that is a part of the program: steps take no batch
        return {"model": own.step.model, "data": own.batch}, None
    return {} if options.resume else {"model": own.step.model}, own.batch


def _arenas(plan: Plan, statistics: Any) -> list[str]:
    """What the workers' arenas held, and what lay outside."""
    uses = [item["arena"] for item in statistics if item["arena"] is not None]
    if not uses:
        why = {item["without"] for item in statistics if item["without"]}
        return [f"no arena: {', '.join(sorted(why))}"] if plan.memory is not None and why else []
    outside = max(use["outside"] for use in uses)
    beside = f"at most {format_bytes(outside)} of scratch lay outside" if outside else "nothing lay outside"
    size, peak = max(use["bytes"] for use in uses), max(use["peak"] for use in uses)
    return [f"arena: {format_bytes(size)} a worker, at most {format_bytes(peak)} in use; {beside}"]


def _line(row: dict[str, Any]) -> str:
    text = f"step {row['step']:>3}"
    if row["loss"] is not None:
        text += f"  loss {row['loss']:.6f}"
    if "undivided" in row:
        verdict = "same" if row["ok"] else "DIFFERENT"
        text += (
            f"  undivided {row['undivided']:.6f}  largest difference {row['absolute']:.2e} ({row['worst']})  {verdict}"
        )
    return text


def _closing(plan: Plan, statistics: Any, options: argparse.Namespace) -> list[str]:
    lines = []
    received = [int(item["bytes_received"]) for item in statistics]
    steps = max(1, options.steps)
    expected = [int(amount) * steps for amount in plan.bytes_received]
    verdict = "as planned" if received == expected else f"planned {sum(expected)}"
    lines.append(f"bytes between workers: {sum(received)} in {steps} steps ({verdict})")
    lines += _arenas(plan, statistics)
    if options.save:
        lines.append(f"checkpoint in {options.save}")
    return lines
