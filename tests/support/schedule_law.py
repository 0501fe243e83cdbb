"""The law of a loop's schedule (`girih.loop.schedules.schedule`)."""

from __future__ import annotations

from itertools import combinations

from girih.loop.schedules.schedule import Schedule, finished_before


def check(plan: Schedule, in_order: bool) -> None:
    """The law of a schedule: every block once; of two that share a part, one ends before the other begins.

    in_order: also, a block begins after all blocks that lie before it in both directions (or level with it in one).

    Raises:
        ValueError: the law is broken; the message names the two blocks.
    """
    blocks = [(task.space, task.time) for tasks in plan.tasks for task in tasks]
    whole = sorted((space, time) for space in range(plan.spaces) for time in range(plan.times))
    if sorted(blocks) != whole:
        raise ValueError(f"{len(blocks)} tasks do not cover {plan.spaces} × {plan.times} blocks once")
    before = finished_before(plan)
    places = {
        (task.space, task.time): (worker, number)
        for worker, tasks in enumerate(plan.tasks)
        for number, task in enumerate(tasks)
    }

    def ends_first(first: tuple[int, int], second: tuple[int, int]) -> bool:
        worker, number = places[first]
        return before[places[second]][worker] > number

    for first, second in combinations(whole, 2):
        shared = first[0] == second[0] or first[1] == second[1]
        if shared and not (ends_first(first, second) or ends_first(second, first)):
            raise ValueError(f"blocks {first} and {second} may run at once")
        if in_order and first[0] <= second[0] and first[1] <= second[1] and not ends_first(first, second):
            raise ValueError(f"block {second} may begin before {first} has ended")
