"""All searches by name: functions from Graph and objective to a Strategy and its certificate."""

from __future__ import annotations

from collections.abc import Callable

from girih.partition.baselines import data, equal, greedy, no_reduction, row, single
from girih.partition.exact import exact
from girih.partition.experts import hybrid, one_weird_trick, parameter_server, rnn_expert
from girih.partition.megatron import megatron
from girih.partition.pipeline import model_parallel, pipeline
from girih.partition.recursive import recursive
from girih.partition.spartan import spartan
from girih.partition.strategy import SearchResult


def _sharded(*arguments: object, **options: object) -> SearchResult:
    return data(*arguments, sharded=True, **options)  # type: ignore[arg-type]


SEARCHES: dict[str, Callable[..., SearchResult]] = {
    "exact": exact,
    "optimum": exact,  # of the tables' sum; of the simulated step `girih.plan_optimum` goes on
    "recursive": recursive,
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
