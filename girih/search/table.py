"""All proposers by name: what the facade, the command line and the documentation know of them is read from here.

A proposer is a frozen dataclass of its options with one verb, and changes parts of a Choice
(`girih.rewrite.proposer`): searches the strategy, searches of rules the rewrites, orders the sequence of steps,
published ways to keep a memory limit what leaves the device or is computed again. A name stands for the place of a
class, which is imported when the proposer is first asked for: the command line lists names without loading any. A text
such as `sampled:seed=3,proposals=500` is a proposer with options, which are the fields of its class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, dataclass, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from girih.partition.search import Search
    from girih.rewrite.proposer import Proposer
    from girih.search.memory.holds import Baseline
    from girih.search.memory.orders.order import StepOrder

SEARCHES: dict[str, str] = {
    "portfolio": "girih.search.portfolio.Portfolio",
    "exact": "girih.partition.searches.exact.Exact",
    "joint": "girih.search.joint.search.Joint",
    "optimum": "girih.published.optimum.search.Optimum",
    "sampled": "girih.partition.searches.sampled.Sampled",
    "recursive": "girih.published.recursive.Recursive",
    "greedy": "girih.published.divisions.classic.Greedy",
    "spartan": "girih.partition.searches.spartan.Spartan",
    "data": "girih.partition.searches.data_parallel.DataParallel",
    "sharded": "girih.partition.searches.data_parallel.ShardedDataParallel",
    "row": "girih.published.divisions.classic.Rows",
    "equal": "girih.published.divisions.classic.EqualChop",
    "no-reduction": "girih.published.divisions.classic.NoReduction",
    "megatron": "girih.published.divisions.megatron.Megatron",
    "one-weird-trick": "girih.published.divisions.experts.OneWeirdTrick",
    "model": "girih.published.divisions.pipeline.ModelParallel",
    "pipeline": "girih.published.divisions.pipeline.Pipeline",
    "pipeline-1f1b": "girih.published.divisions.pipeline.OneForwardOneBackward",
    "stages": "girih.search.stages.DividedStages",
    "rnn-expert": "girih.published.divisions.experts.RnnExpert",
    "hybrid": "girih.published.divisions.experts.Hybrid",
    "experts": "girih.published.divisions.experts.ExpertParallel",
    "parameter-server": "girih.published.divisions.experts.ParameterServer",
    "proportional": "girih.partition.searches.proportional.Proportional",
    "vertices": "girih.gnn.partitioner.search.Vertices",
    "single": "girih.published.divisions.classic.Single",
}

HOLDS: dict[str, str] = {
    "auto": "Whatever of swap and recompute is fastest, operators in pieces too",
    "swap": "Tensors are moved to the large memory behind the device and back in time, in the best order that is found",
    "recompute": "Tensors are dropped and computed again, by minimum cuts and by the optimum for chains",
    "none": "The plan is refused",
}
"""girih's own ways to keep a memory limit, and what they do."""

BASELINES: dict[str, str] = {
    "odswap": "girih.published.memory.swapping.OnDemand",
    "lms": "girih.published.memory.activations.LargeModelSupport",
    "vdnn": "girih.published.memory.activations.Vdnn",
    "vdnn-conv": "girih.published.memory.activations.VdnnConvolutions",
    "layers": "girih.published.memory.swapping.LayerByLayer",
    "tensorflowmem": "girih.published.memory.swapping.Partitioned",
    "roc": "girih.published.memory.roc.LeastCopies",
    "sqrt": "girih.published.memory.checkpointing.SquareRoot",
    "chain": "girih.published.memory.checkpointing.OptimalChain",
}

ORDERS: dict[str, str] = {
    "captured": "girih.search.memory.orders.order.Captured",
    "early": "girih.search.memory.orders.order.Early",
    "least": "girih.search.memory.orders.order.Least",
    "depth-first": "girih.search.memory.orders.order.DepthFirst",
    "depth-guided": "girih.search.memory.orders.order.DepthGuided",
    "depth-first-guided": "girih.search.memory.orders.order.DepthFirstGuided",
}

REWRITES: dict[str, str] = {
    "backtracking": "girih.rewrite.backtracking.Backtracking",
    "saturation": "girih.rewrite.saturation.search.Saturation",
}

Readers = dict[str, tuple[str, Callable[[str], Any]]]


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError
    return int(text)


def _number_or_word(text: str) -> int | str:
    """Which of both it may be, the class says."""
    return int(text) if text.isdecimal() and len(text) <= 9 else text[:40]


ANY = ("a number or a word", _number_or_word)
PLAIN: Readers = {"int": ("int", int), "float": ("float", float), "str": ("str", str)}


@dataclass(frozen=True)
class Kind:
    """Proposers of one kind. places: where the class of each is, by name. called: what messages about options call one.
    readers: by the type of a field what an option of this type is, in words, and what makes its value of a text."""

    places: dict[str, str]
    called: str
    readers: Readers


PROPOSERS = {
    "search": Kind(SEARCHES, "search {}", PLAIN),
    "baseline": Kind(BASELINES, "{}", {"int": ANY, "str": ANY}),
    "order": Kind(ORDERS, "order {}", {"int": ("a whole number of at least 1", _whole)}),
    "rewrite": Kind(REWRITES, "search {}", PLAIN),
}
"""What a proposer is called, and all of this kind."""


def class_of(kind: str, name: str) -> Any:
    """The class of the proposer of this kind and name.

    Raises:
        SearchError: there is none.
    """
    from girih.partition.strategy import SearchError

    places = PROPOSERS[kind].places
    if name not in places:
        raise SearchError(f"no {kind} {name!r}: expected one of {', '.join(places)}")
    module, _, cls = places[name].rpartition(".")
    return getattr(import_module(module), cls)


def options_of(proposer: type[Proposer]) -> dict[str, Field[Any]]:
    """The options of a proposer that can be written as text, by name; what composes searches is not shown."""
    return {item.name: item for item in fields(proposer) if item.repr and item.type in PLAIN}


def proposer_of(kind: str, text: str, **given: Any) -> Any:
    """The proposer that a text names, with its options, as `sampled:seed=3,proposals=500`. given: options that the text
    need not say.

    Raises:
        SearchError: there is no such proposer, or its class refuses an option.
        ValueError: there is no such option, or the option cannot be so.
    """
    name, colon, rest = text.partition(":")
    cls, known = class_of(kind, name), PROPOSERS[kind]
    readers = {option: known.readers[str(item.type)] for option, item in options_of(cls).items()}
    called = known.called.format(name)
    for option, _, value in (pair.partition("=") for pair in rest.split(",")) if colon else ():
        if option not in readers:
            expected = f"expected one of {', '.join(readers)}" if readers else "it has none"
            raise ValueError(f"{called} has no option {option!r}: {expected}")
        words, reader = readers[option]
        try:
            given[option] = reader(value)
        except ValueError:
            raise ValueError(f"{called}: option {option} is {words}, got {value!r}") from None
    return cls(**given)


def search_of(search: str | Search, seconds: float | None = None) -> Search:
    """A search as it is, or the one that a text names. seconds: of a search whose text does not say them.

    Raises:
        SearchError: there is no such search or option, or the option cannot be so.
    """
    from girih.partition.search import Search
    from girih.partition.strategy import SearchError

    if isinstance(search, Search):
        return search
    if not isinstance(search, str):
        raise SearchError(f"no search {search!r}: expected a search of girih.search, or the name of one")
    try:
        own: Search = proposer_of("search", search, **({} if seconds is None else {"seconds": seconds}))
    except ValueError as error:
        raise SearchError(str(error)) from None
    return own


def baseline_of(text: str | Baseline) -> Baseline:
    """The published way to keep a memory limit that a text names, or as it is; see `proposer_of`."""
    return proposer_of("baseline", text) if isinstance(text, str) else text


def order_of(text: str | StepOrder) -> StepOrder:
    """The order of steps that a text names, or as it is; see `proposer_of`."""
    return proposer_of("order", text) if isinstance(text, str) else text
