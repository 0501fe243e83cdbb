"""All proposers by name: what the facade, the command line and the documentation know of them is read from here.

A proposer is a frozen dataclass of its options with one verb, and changes one part of a Choice
(`girih.partition.search.Proposer`): searches the strategy, published ways to keep a memory limit what leaves the device
or is computed again. A name stands for the place of a class, which is imported when the proposer is first asked for:
the command line lists names without loading any. A text such as `sampled:seed=3,proposals=500` is a proposer with
options, which are the fields of its class.
"""

from __future__ import annotations

from dataclasses import Field, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any

from girih.search.options import named, read

if TYPE_CHECKING:
    from girih.partition.search import Proposer, Search
    from girih.search.memory.holds import Baseline

SEARCHES: dict[str, str] = {
    "portfolio": "girih.search.portfolio.Portfolio",
    "exact": "girih.partition.searches.exact.Exact",
    "optimum": "girih.published.optimum.Optimum",
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
    "rnn-expert": "girih.published.divisions.experts.RnnExpert",
    "hybrid": "girih.published.divisions.experts.Hybrid",
    "parameter-server": "girih.published.divisions.experts.ParameterServer",
    "proportional": "girih.partition.searches.proportional.Proportional",
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
    "sqrt": "girih.published.memory.checkpointing.SquareRoot",
    "chain": "girih.published.memory.checkpointing.OptimalChain",
}

PROPOSERS = {"search": SEARCHES, "baseline": BASELINES}
"""What a proposer is called, and all of this kind."""

READERS = {"int": int, "float": float, "str": str}
"""Options of these types can be written as text."""


def _class_of(kind: str, name: str) -> Any:
    """The class of the proposer of this kind and name.

    Raises:
        SearchError: there is none.
    """
    from girih.partition.strategy import SearchError

    if name not in PROPOSERS[kind]:
        raise SearchError(f"no {kind} {name!r}: expected one of {', '.join(PROPOSERS[kind])}")
    module, _, cls = PROPOSERS[kind][name].rpartition(".")
    return getattr(import_module(module), cls)


def search_class(name: str) -> type[Search]:
    """The class of the search of this name.

    Raises:
        SearchError: there is none.
    """
    search: type[Search] = _class_of("search", name)
    return search


def baseline_class(name: str) -> type[Baseline]:
    """The class of the published way to keep a memory limit of this name.

    Raises:
        SearchError: there is none.
    """
    baseline: type[Baseline] = _class_of("baseline", name)
    return baseline


def options_of(proposer: type[Proposer]) -> dict[str, Field[Any]]:
    """The options of a proposer that can be written as text, by name; what composes searches is not shown."""
    return {item.name: item for item in fields(proposer) if item.repr and item.type in READERS}


def search_of(search: str | Search, seconds: float | None = None) -> Search:
    """A search as it is, or the one that a text names: `exact`, or with options `sampled:seed=3,proposals=500`.

    seconds: of a search whose text does not say them.

    Raises:
        SearchError: there is no such search or option, or the option cannot be so.
    """
    from girih.partition.search import Search
    from girih.partition.strategy import SearchError

    if isinstance(search, Search):
        return search
    if not isinstance(search, str):
        raise SearchError(f"no search {search!r}: expected a search of girih.search, or the name of one")
    name, pairs = named(search)
    cls = search_class(name)
    readers = {option: (str(item.type), READERS[str(item.type)]) for option, item in options_of(cls).items()}
    try:
        options = read(pairs, f"search {name}", readers)
    except ValueError as error:
        raise SearchError(str(error)) from None
    return cls(**({} if seconds is None else {"seconds": seconds}) | options)


def baseline_of(text: str | Baseline) -> Baseline:
    """The published way to keep a memory limit that a text names, with its options, or as it is.

    Raises:
        ValueError: there is none, or it has no such option, or the option cannot be so.
    """
    if not isinstance(text, str):
        return text
    name, pairs = named(text)
    cls = baseline_class(name)
    return cls(**read(pairs, name, dict.fromkeys(options_of(cls), ("a number or a word", _number_or_word))))


def _number_or_word(text: str) -> int | str:
    """Which of both it may be, the class says."""
    return int(text) if text.isdecimal() and len(text) <= 9 else text[:40]
