"""torch.optim's updates as pure functions of (parameter, gradient, state, learning rate).

Each follows the formulas of the class's documentation in PyTorch, in as few element-wise operators as they
allow. Differences: the learning rate is a tensor that enters the graph; one step count serves a whole group
of parameters; and SGD's momentum starts from zeros, which gives torch's first step (momentum = gradient).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from girih.capture.errors import CaptureError

Tensor = Any


class StateStore(Protocol):
    """Where the state of one group of parameters comes from and goes to."""

    def read(self, key: str, initial: float, like: Tensor | None) -> Tensor:
        """The state `key` as a graph input, shaped like `like`, or a float32 scalar."""

    def write(self, key: str, value: Tensor) -> None:
        """What replaces the state `key` at the end of the step."""


@dataclass(frozen=True)
class Group:
    """What the parameters of a group share within a step: hyperparameters, learning rate, derived scalars."""

    options: dict[str, Any]
    rate: Tensor
    shared: dict[str, Tensor]

    def __getitem__(self, name: str) -> Any:
        return self.options[name]


Begin = Callable[[dict[str, Any], Tensor, StateStore], dict[str, Tensor]]
Update = Callable[[Group, Tensor, Tensor, StateStore], Tensor]


@dataclass(frozen=True)
class OptimizerRule:
    """An optimizer: `begin` makes a group's shared scalars, `update` a new parameter.

    state: torch.optim's key of each state tensor by ours; shared: of each number that a group shares, beside its step.
    shape: of a state tensor, by its key and the parameter's shape; None where there is none of this key.
    """

    begin: Begin
    update: Update
    state: dict[str, str]
    shared: dict[str, str] = field(default_factory=dict)
    shape: Callable[[str, tuple[int, ...]], tuple[int, ...] | None] = lambda key, shape: shape


def _step(store: StateStore) -> Tensor:
    step = store.read("step", 0.0, None) + 1.0
    store.write("step", step)
    return step


def _scalar(value: Tensor, rate: Tensor) -> Tensor:
    return value.to(rate.dtype)


def _gradient(group: Group, parameter: Tensor, grad: Tensor, decay: float) -> Tensor:
    if group["maximize"]:
        grad = -grad
    return torch.add(grad, parameter, alpha=decay) if decay else grad


def _moments(group: Group, parameter: Tensor, grad: Tensor, store: StateStore) -> tuple[Tensor, Tensor]:
    """Adam's running means of the gradient and of its square."""
    first, second = group["betas"]
    mean = torch.lerp(store.read("mean", 0.0, parameter), grad, 1.0 - first)
    square = torch.addcmul(store.read("square", 0.0, parameter) * second, grad, grad, value=1.0 - second)
    store.write("mean", mean)
    store.write("square", square)
    return mean, square


def _begin_sgd(options: dict[str, Any], rate: Tensor, store: StateStore) -> dict[str, Tensor]:
    if not (options["momentum"] and options["dampening"]):
        return {}
    step = _scalar(_step(store), rate)
    # The first step takes the whole gradient, later ones 1 - dampening of it.
    first = torch.full_like(rate, 1.0)
    return {"share": torch.where(step == 1.0, first, torch.full_like(rate, 1.0 - options["dampening"]))}


def _sgd(group: Group, parameter: Tensor, grad: Tensor, store: StateStore) -> Tensor:
    grad = _gradient(group, parameter, grad, group["weight_decay"])
    momentum = group["momentum"]
    if momentum:
        old = store.read("momentum", 0.0, parameter)
        if "share" in group.shared:
            new = torch.addcmul(old * momentum, grad, group.shared["share"])
        else:
            new = torch.add(grad, old, alpha=momentum)
        store.write("momentum", new)
        grad = torch.add(grad, new, alpha=momentum) if group["nesterov"] else new
    return torch.addcmul(parameter, grad, group.rate, value=-1.0)


def _decay(options: dict[str, Any], rate: Tensor) -> dict[str, Tensor]:
    """What decoupled weight decay multiplies a parameter by; nothing without it."""
    decays = options["decoupled_weight_decay"] and options["weight_decay"]
    return {"decay": 1.0 - rate * options["weight_decay"]} if decays else {}


def _begin_adam(options: dict[str, Any], rate: Tensor, store: StateStore) -> dict[str, Tensor]:
    first, second = options["betas"]
    step = _scalar(_step(store), rate)
    shared = {
        "size": rate / (1.0 - torch.pow(first, step)),
        "correction": torch.sqrt(1.0 - torch.pow(second, step)),
        "eps": torch.full_like(rate, options["eps"]),
    }
    return shared | _decay(options, rate)


def _adam(group: Group, parameter: Tensor, grad: Tensor, store: StateStore) -> Tensor:
    decoupled = group["decoupled_weight_decay"]
    grad = _gradient(group, parameter, grad, 0.0 if decoupled else group["weight_decay"])
    mean, square = _moments(group, parameter, grad, store)
    greatest = square
    if group["amsgrad"]:
        greatest = torch.maximum(store.read("greatest", 0.0, parameter), square)
        store.write("greatest", greatest)
    shared = group.shared
    scale = torch.addcdiv(shared["eps"], torch.sqrt(greatest), shared["correction"])
    if "decay" in shared:
        parameter = parameter * shared["decay"]
    return torch.addcdiv(parameter, mean * shared["size"], scale, value=-1.0)


def _begin_radam(options: dict[str, Any], rate: Tensor, store: StateStore) -> dict[str, Tensor]:
    first, second = options["betas"]
    step = _scalar(_step(store), rate)
    power = torch.pow(second, step)
    most = 2.0 / (1.0 - second) - 1.0
    length = most - 2.0 * step * power / (1.0 - power)
    rectified = length > 5.0
    inner = (length - 4.0) * (length - 2.0) * most / ((most - 4.0) * (most - 2.0) * length)
    factor = torch.sqrt(torch.where(rectified, inner, torch.zeros_like(rate)) * (1.0 - power))
    shared = {
        "size": rate / (1.0 - torch.pow(first, step)),
        "adaptive": factor,
        "plain": torch.where(rectified, torch.zeros_like(rate), torch.ones_like(rate)),
    }
    return shared | _decay(options, rate)


def _radam(group: Group, parameter: Tensor, grad: Tensor, store: StateStore) -> Tensor:
    shared = group.shared
    grad = _gradient(group, parameter, grad, 0.0 if group["decoupled_weight_decay"] else group["weight_decay"])
    mean, square = _moments(group, parameter, grad, store)
    if "decay" in shared:
        parameter = parameter * shared["decay"]
    scale = shared["adaptive"] / (torch.sqrt(square) + group["eps"]) + shared["plain"]
    return torch.addcmul(parameter, mean * shared["size"], scale, value=-1.0)


def _begin_adamax(options: dict[str, Any], rate: Tensor, store: StateStore) -> dict[str, Tensor]:
    return {"size": rate / (1.0 - torch.pow(options["betas"][0], _scalar(_step(store), rate)))}


def _adamax(group: Group, parameter: Tensor, grad: Tensor, store: StateStore) -> Tensor:
    first, second = group["betas"]
    grad = _gradient(group, parameter, grad, group["weight_decay"])
    mean = torch.lerp(store.read("mean", 0.0, parameter), grad, 1.0 - first)
    greatest = torch.maximum(store.read("greatest", 0.0, parameter) * second, torch.abs(grad) + group["eps"])
    store.write("mean", mean)
    store.write("greatest", greatest)
    return torch.addcdiv(parameter, mean * group.shared["size"], greatest, value=-1.0)


def _rmsprop(group: Group, parameter: Tensor, grad: Tensor, store: StateStore) -> Tensor:
    kept, momentum = group["alpha"], group["momentum"]
    grad = _gradient(group, parameter, grad, group["weight_decay"])
    square = torch.addcmul(store.read("square", 0.0, parameter) * kept, grad, grad, value=1.0 - kept)
    store.write("square", square)
    if group["centered"]:
        mean = torch.lerp(store.read("mean", 0.0, parameter), grad, 1.0 - kept)
        store.write("mean", mean)
        square = torch.addcmul(square, mean, mean, value=-1.0)
    scale = torch.sqrt(square) + group["eps"]
    if not momentum:
        return torch.addcdiv(parameter, grad * group.rate, scale, value=-1.0)
    moved = torch.addcdiv(store.read("momentum", 0.0, parameter) * momentum, grad, scale)
    store.write("momentum", moved)
    return torch.addcmul(parameter, moved, group.rate, value=-1.0)


def _adadelta(group: Group, parameter: Tensor, grad: Tensor, store: StateStore) -> Tensor:
    kept, eps = group["rho"], group["eps"]
    grad = _gradient(group, parameter, grad, group["weight_decay"])
    square = torch.addcmul(store.read("square", 0.0, parameter) * kept, grad, grad, value=1.0 - kept)
    before = store.read("moves", 0.0, parameter)
    move = torch.sqrt(before + eps) / torch.sqrt(square + eps) * grad
    store.write("square", square)
    store.write("moves", torch.addcmul(before * kept, move, move, value=1.0 - kept))
    return torch.addcmul(parameter, move, group.rate, value=-1.0)


def _begin_adagrad(options: dict[str, Any], rate: Tensor, store: StateStore) -> dict[str, Tensor]:
    if not options["lr_decay"]:
        return {"size": rate}
    step = _scalar(_step(store), rate)
    return {"size": rate / ((step - 1.0) * options["lr_decay"] + 1.0)}


def _adagrad(group: Group, parameter: Tensor, grad: Tensor, store: StateStore) -> Tensor:
    grad = _gradient(group, parameter, grad, group["weight_decay"])
    total = torch.addcmul(store.read("sum", group["initial_accumulator_value"], parameter), grad, grad)
    store.write("sum", total)
    return torch.addcdiv(parameter, grad * group.shared["size"], torch.sqrt(total) + group["eps"], value=-1.0)


def _begin_nadam(options: dict[str, Any], rate: Tensor, store: StateStore) -> dict[str, Tensor]:
    first, second = options["betas"]
    count = _step(store)
    step = _scalar(count, rate)
    now, later = (
        first * (1.0 - 0.5 * torch.pow(0.96, (step + ahead) * options["momentum_decay"])) for ahead in (0.0, 1.0)
    )
    old = store.read("product", 0.0, None)
    kept = torch.where(count == 1.0, torch.ones_like(old), old) * now.to(old.dtype)  # torch keeps it in float32, too
    store.write("product", kept)
    product = _scalar(kept, rate)
    shared = {
        "grad": rate * (1.0 - now) / (1.0 - product),
        "mean": rate * later / (1.0 - product * later),
        "correction": torch.sqrt(1.0 - torch.pow(second, step)),
        "eps": torch.full_like(rate, options["eps"]),
    }
    return shared | _decay(options, rate)


def _nadam(group: Group, parameter: Tensor, grad: Tensor, store: StateStore) -> Tensor:
    shared = group.shared
    grad = _gradient(group, parameter, grad, 0.0 if group["decoupled_weight_decay"] else group["weight_decay"])
    mean, square = _moments(group, parameter, grad, store)
    if "decay" in shared:
        parameter = parameter * shared["decay"]
    scale = torch.addcdiv(shared["eps"], torch.sqrt(square), shared["correction"])
    return torch.addcdiv(parameter, torch.addcmul(grad * shared["grad"], mean, shared["mean"]), scale, value=-1.0)


def _begin_asgd(options: dict[str, Any], rate: Tensor, store: StateStore) -> dict[str, Tensor]:
    count = _step(store)
    step = _scalar(count, rate)
    old = store.read("eta", 0.0, None)
    eta = _scalar(torch.where(count == 1.0, rate.to(old.dtype), old), rate)  # torch keeps it in float32, too
    store.write("eta", (rate / torch.pow(1.0 + options["lambd"] * rate * step, options["alpha"])).to(old.dtype))
    return {
        "eta": eta,
        "decay": 1.0 - options["lambd"] * eta,
        "share": _scalar(1.0 / torch.clamp(count - 1.0 - options["t0"], min=1.0), rate),
    }


def _asgd(group: Group, parameter: Tensor, grad: Tensor, store: StateStore) -> Tensor:
    grad = _gradient(group, parameter, grad, group["weight_decay"])
    new = torch.addcmul(parameter * group.shared["decay"], grad, group.shared["eta"], value=-1.0)
    average = store.read("average", 0.0, parameter)
    store.write("average", torch.addcmul(average, new - average, group.shared["share"]))
    return new


def _begin_rprop(options: dict[str, Any], rate: Tensor, store: StateStore) -> dict[str, Tensor]:
    shrink, grow = options["etas"]
    factors = {"shrink": shrink, "grow": grow, "same": 1.0, "none": 0.0}
    begun = _step(store) != 1.0
    return {"begun": begun, **{name: torch.full_like(rate, factor) for name, factor in factors.items()}}


def _rprop(group: Group, parameter: Tensor, grad: Tensor, store: StateStore) -> Tensor:
    shared = group.shared
    smallest, largest = group["step_sizes"]
    grad = _gradient(group, parameter, grad, 0.0)
    agreed = grad * store.read("previous", 0.0, parameter)
    turned = agreed < 0.0
    size = torch.where(shared["begun"], store.read("size", 0.0, parameter), group.rate)
    factor = torch.where(agreed > 0.0, shared["grow"], torch.where(turned, shared["shrink"], shared["same"]))
    size = torch.clamp(size * factor, smallest, largest)
    grad = torch.where(turned, shared["none"], grad)
    store.write("previous", grad)
    store.write("size", size)
    return torch.addcmul(parameter, torch.sign(grad), size, value=-1.0)


def _begin_adafactor(options: dict[str, Any], rate: Tensor, store: StateStore) -> dict[str, Tensor]:
    step = _scalar(_step(store), rate)
    return {
        "share": torch.pow(step, options["beta2_decay"]),
        "size": torch.minimum(rate, torch.rsqrt(step)),
        "decay": 1.0 - rate * options["weight_decay"],
    }


def _adafactor(group: Group, parameter: Tensor, grad: Tensor, store: StateStore) -> Tensor:
    shared, (least, smallest) = group.shared, group["eps"]
    least = torch.finfo(parameter.dtype).eps if least is None else least
    grad = _gradient(group, parameter, grad, 0.0)
    share = shared["share"].to(parameter.dtype)
    alpha = torch.clamp(_root_mean_square(parameter), min=smallest) * shared["size"].to(parameter.dtype)
    if group["weight_decay"]:
        parameter = parameter * shared["decay"]
    if grad.dim() > 1:
        row, column = (
            torch.lerp(store.read(key, 0.0, _narrowed(parameter, dim)), grad.square().mean(dim, keepdim=True), share)
            for key, dim in (("row", -1), ("column", -2))
        )
        store.write("row", row)
        store.write("column", column)
        estimate = row @ column / torch.clamp(row.mean(-2, keepdim=True), min=least)
    else:
        estimate = torch.lerp(store.read("variance", 0.0, parameter), grad.square(), share)
        store.write("variance", estimate)
    update = torch.rsqrt(torch.clamp(estimate, min=least * least)) * grad
    scale = torch.clamp(_root_mean_square(update) / group["d"], min=1.0)
    return torch.addcmul(parameter, update, alpha / scale, value=-1.0)


def _root_mean_square(tensor: Tensor) -> Tensor:
    return torch.linalg.vector_norm(tensor) / tensor.numel() ** 0.5


def _narrowed(tensor: Tensor, dim: int) -> Tensor:
    return tensor.narrow(dim, 0, 1).contiguous()


def _shape_of_adafactor(key: str, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    if (len(shape) > 1) == (key == "variance"):
        return None
    return {"row": (*shape[:-1], 1), "column": (*shape[:-2], 1, *shape[-1:]), "variance": shape}[key]


_without_shared: Begin = lambda options, rate, store: {}  # noqa: E731
_ADAM = OptimizerRule(_begin_adam, _adam, {"mean": "exp_avg", "square": "exp_avg_sq", "greatest": "max_exp_avg_sq"})

OPTIMIZERS: dict[type, OptimizerRule] = {
    torch.optim.SGD: OptimizerRule(_begin_sgd, _sgd, {"momentum": "momentum_buffer"}),
    torch.optim.Adam: _ADAM,
    torch.optim.AdamW: _ADAM,
    torch.optim.Adagrad: OptimizerRule(_begin_adagrad, _adagrad, {"sum": "sum"}),
    torch.optim.RMSprop: OptimizerRule(
        _without_shared, _rmsprop, {"square": "square_avg", "mean": "grad_avg", "momentum": "momentum_buffer"}
    ),
    torch.optim.Adadelta: OptimizerRule(_without_shared, _adadelta, {"square": "square_avg", "moves": "acc_delta"}),
    torch.optim.Adamax: OptimizerRule(_begin_adamax, _adamax, {"mean": "exp_avg", "greatest": "exp_inf"}),
    torch.optim.RAdam: OptimizerRule(_begin_radam, _radam, {"mean": "exp_avg", "square": "exp_avg_sq"}),
    torch.optim.NAdam: OptimizerRule(
        _begin_nadam, _nadam, {"mean": "exp_avg", "square": "exp_avg_sq"}, {"product": "mu_product"}
    ),
    torch.optim.ASGD: OptimizerRule(_begin_asgd, _asgd, {"average": "ax"}, {"eta": "eta"}),
    torch.optim.Adafactor: OptimizerRule(
        _begin_adafactor,
        _adafactor,
        {"row": "row_var", "column": "col_var", "variance": "variance"},
        shape=_shape_of_adafactor,
    ),
    torch.optim.Rprop: OptimizerRule(_begin_rprop, _rprop, {"previous": "prev", "size": "step_size"}),
}


_NO_CLOSURE = inspect.Parameter("closure", inspect.Parameter.KEYWORD_ONLY, default=None)
MADE = "torch.optim.SGD(model.parameters(), lr=0.1)"


def rule_of(optimizer: Any) -> OptimizerRule | None:
    """The functional form of an optimizer; None for one whose own code is traced (`girih.capture.torch.own_update`): of
    another class, or with a scheduler that changes its momentum.

    Raises:
        CaptureError: it is none, computes the loss by itself, or has hooks on its step.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        described = f"the class {optimizer.__name__}" if isinstance(optimizer, type) else repr(optimizer)
        raise CaptureError(f"optimizer must be one made from the model's parameters, such as {MADE}; got {described}")
    if (
        inspect.signature(type(optimizer).step).parameters.get("closure", _NO_CLOSURE).default
        is inspect.Parameter.empty
    ):
        raise CaptureError(
            f"{type(optimizer).__name__} computes the loss by itself, and more than once (its step needs a closure): "
            "expected an optimizer whose step takes gradients"
        )
    hooks = *optimizer._optimizer_step_pre_hooks.values(), *optimizer._optimizer_step_post_hooks.values()
    if any(not getattr(hook, "only_reads", False) for hook in hooks):
        raise CaptureError(
            f"{type(optimizer).__name__} has hooks on its step, which a plan does not call: use clip_grad_norm= of "
            "TrainingStep, hooks on parameters or code in the step, or remove them"
        )
    scheduled = any("base_momentum" in group for group in optimizer.param_groups)  # by OneCycleLR or CyclicLR
    return None if scheduled else OPTIMIZERS.get(type(optimizer))


def check_own_step(optimizer: Any) -> None:
    """Raises CaptureError for an optimizer with another `step` than its class has, which a plan would not call."""
    own = vars(optimizer).get("step")
    file = getattr(getattr(own, "__code__", None), "co_filename", "")
    if own is not None and file != torch.optim.lr_scheduler.__file__:  # by which schedulers count calls
        raise CaptureError(
            f"the step of this {type(optimizer).__name__} was replaced by {getattr(own, '__qualname__', own)!r}, which "
            "a plan does not call: make it the step of a class of your own, or use clip_grad_norm=, hooks on "
            "parameters or code in the step"
        )
