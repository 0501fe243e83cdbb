"""All searches by name: what the facade, the command line and the documentation know of searches is read from here.

A name stands for the place of a class, which is imported when the search is first asked for: the command line lists
names without loading any. A text such as `sampled:seed=3,proposals=500` is a search with options, which are the fields
of its class.
"""

from __future__ import annotations

from dataclasses import Field, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any

from girih.memory.options import named, read

if TYPE_CHECKING:
    from girih.partition.search import Search

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

READERS = {"int": int, "float": float, "str": str}
"""Options of these types can be written as text."""


def search_class(name: str) -> type[Search]:
    """The class of the search of this name.

    Raises:
        SearchError: there is none.
    """
    from girih.partition.strategy import SearchError

    if name not in SEARCHES:
        raise SearchError(f"no search {name!r}: expected one of {', '.join(SEARCHES)}")
    module, _, cls = SEARCHES[name].rpartition(".")
    search: type[Search] = getattr(import_module(module), cls)
    return search


def options_of(search: type[Search]) -> dict[str, Field[Any]]:
    """The options of a search that can be written as text, by name; what composes searches is not shown."""
    return {item.name: item for item in fields(search) if item.repr and item.type in READERS}


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
