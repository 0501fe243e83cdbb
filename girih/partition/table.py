"""All searches by name: functions from Graph and objective to a Strategy and its certificate."""

from __future__ import annotations

from collections.abc import Callable

from girih.partition.baselines.classic import data, equal, greedy, no_reduction, row, single
from girih.partition.baselines.experts import hybrid, one_weird_trick, parameter_server, rnn_expert
from girih.partition.baselines.megatron import megatron
from girih.partition.baselines.pipeline import model_parallel, pipeline
from girih.partition.searches.exact import exact
from girih.partition.searches.proportional import proportional
from girih.partition.searches.recursive import recursive
from girih.partition.searches.spartan import spartan
from girih.partition.strategy import SearchResult


def _sharded(*arguments: object, **options: object) -> SearchResult:
    return data(*arguments, sharded=True, **options)  # type: ignore[arg-type]


SEARCHES: dict[str, Callable[..., SearchResult]] = {
    "exact": exact,
    "optimum": exact,  # of the tables' sum; of the simulated step `girih.search.optimum` goes on
    "recursive": recursive,
    "proportional": proportional,
    "greedy": greedy,
    "spartan": spartan,
    "data": data,
    "sharded": _sharded,
    "row": row,
    "equal": equal,
    "no-reduction": no_reduction,
    "megatron": megatron,
    "one-weird-trick": one_weird_trick,
    "model": model_parallel,
    "pipeline": pipeline,
    "rnn-expert": rnn_expert,
    "hybrid": hybrid,
    "parameter-server": parameter_server,
    "single": single,
}
