"""The compiled loops of `girih.partition.searches.sampled`: what a choice of labels takes, and how one layer is chosen
anew.

The flat form of a PartitionProblem (`sampled.flatten`): nodes in the graph's order, which is the order in which every
device works; for each node its own seconds by division, the transfers of what it reads and makes by (division,
layout), and which devices take part. `makespan` lets devices compute and their links carry at the same time, one
transfer after another on each device's link (FlexFlow §3.4, assumptions A2-A4, with a collective as one task). It
is the sampler's guide; the simulator of the program has the last word.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from girih.layout.compiled import compiled

INFINITE = np.inf


class Flat(NamedTuple):
    """Nodes, in the graph's order, with what they cost and who takes part.

    tables: all tables of costs, one after another; table_at, table_columns: where each begins, and its last extent.
    own_at: [nodes], where a node's own seconds by division begin. masks: [labels of options, devices], 1 where a
    device takes part; node_mask_at, value_mask_at: the first row of a node's or variable's. in_…, out_…: what each
    node reads and makes: where it begins, the value, its variable, the table. maker: [values], the node, or -1.
    """

    tables: np.ndarray
    own_at: np.ndarray
    masks: np.ndarray
    node_mask_at: np.ndarray
    value_mask_at: np.ndarray
    in_from: np.ndarray
    in_value: np.ndarray
    in_variable: np.ndarray
    in_table: np.ndarray
    out_from: np.ndarray
    out_value: np.ndarray
    out_variable: np.ndarray
    out_table: np.ndarray
    table_at: np.ndarray
    table_columns: np.ndarray
    maker: np.ndarray
    values: int
    devices: int


class Users(NamedTuple):
    """Who touches each variable of a value: nodes and tables; the layer of each node (`inside`); all variables'
    numbers of labels; and whether the variable enters the graph (`kept`)."""

    inside: np.ndarray
    use_from: np.ndarray
    use_node: np.ndarray
    use_table: np.ndarray
    domains: np.ndarray
    kept: np.ndarray


class Layers(NamedTuple):
    """The nodes and the variables of values of each layer, and where each layer's begin."""

    nodes: np.ndarray
    nodes_from: np.ndarray
    values: np.ndarray
    values_from: np.ndarray


@compiled(nogil=True, inline="always")
def _brought(ready, seconds, link, some, others):  # type: ignore[no-untyped-def]
    """When a transfer ends that takes so many seconds: it begins when its value is ready and the links of all devices
    that send or receive, those of two masks, are free; it holds these until it ends."""
    begin = ready
    for device in range(len(link)):
        if (some[device] or others[device]) and link[device] > begin:
            begin = link[device]
    for device in range(len(link)):
        if some[device] or others[device]:
            link[device] = begin + seconds
    return begin + seconds


@compiled(nogil=True)
def makespan(flat, labels, cause, starts, ends):  # type: ignore[no-untyped-def]
    """Seconds of the last device. cause: for each node the node before it on the path that held it up, or -1."""
    tables, table_at, table_columns = flat.tables, flat.table_at, flat.table_columns
    nodes, devices = len(flat.own_at), flat.devices
    first = len(labels) - nodes
    ready = np.zeros(flat.values)
    clock, link = np.zeros(devices), np.zeros(devices)
    last = np.full(devices, -1, np.int64)
    finish = 0.0
    for node in range(nodes):
        label = labels[first + node]
        taking = flat.masks[flat.node_mask_at[node] + label]
        # What the node reads is brought to it.
        arrive, held_by = 0.0, -1
        for place in range(flat.in_from[node], flat.in_from[node + 1]):
            value, variable, table = flat.in_value[place], flat.in_variable[place], flat.in_table[place]
            lies = labels[variable]
            seconds = tables[table_at[table] + label * table_columns[table] + lies]
            end = ready[value]
            if seconds > 0.0:
                if seconds == INFINITE:
                    return INFINITE
                end = _brought(end, seconds, link, taking, flat.masks[flat.value_mask_at[variable] + lies])
            if end > arrive:
                arrive, held_by = end, flat.maker[value]
        own_seconds = tables[flat.own_at[node] + label]
        if own_seconds == INFINITE:
            return INFINITE
        # Each device that takes part begins when all has arrived and its own work before is done. `cause` is what the
        # last of them waited for: the maker of the last value that arrived, or the node before on that device.
        done = 0.0
        cause[node] = held_by
        latest = -1.0
        for device in range(devices):
            if taking[device]:
                begin = arrive
                if clock[device] > begin:
                    begin = clock[device]
                    if clock[device] > latest:
                        latest = clock[device]
                        cause[node] = last[device]
                clock[device] = begin + own_seconds
                last[device] = node
                if clock[device] > done:
                    done = clock[device]
                    starts[node] = begin
        ends[node] = done
        # What the node makes is brought to where it lies, in the same way, before anybody can read it.
        for place in range(flat.out_from[node], flat.out_from[node + 1]):
            value, variable, table = flat.out_value[place], flat.out_variable[place], flat.out_table[place]
            lies = labels[variable]
            seconds = tables[table_at[table] + label * table_columns[table] + lies]
            end = done
            if seconds > 0.0:
                if seconds == INFINITE:
                    return INFINITE
                end = _brought(end, seconds, link, taking, flat.masks[flat.value_mask_at[variable] + lies])
            ready[value] = end
            if end > finish:
                finish = end
        if done > finish:
            finish = done
    return finish


@compiled(nogil=True)
def _best(cost):  # type: ignore[no-untyped-def]
    """The first label of least cost, and this cost; -1 and infinite where every label is forbidden."""
    best, at = INFINITE, -1
    for label in range(len(cost)):
        if cost[label] < best:
            best, at = cost[label], label
    return at, best


@compiled(nogil=True)
def complete(flat, graph, labels, members, member_variables, fixed, noise):  # type: ignore[no-untyped-def]
    """Choose anew the labels of one layer's nodes and values, all others and node `fixed` held. False: impossible.

    Two sweeps in the order of the nodes: each node takes the division that costs least with what it reads, and with
    the best layout of what it makes, for those consumers whose division is known; in the second sweep all are. What
    lives from step to step (weights) takes the layout that suits the nodes of the layer that are known.
    noise: each cost is multiplied by up to 1 + noise, so that a layer is not always completed alike.
    """
    tables, table_at, table_columns = flat.tables, flat.table_at, flat.table_columns
    nodes = len(flat.own_at)
    first = len(labels) - nodes
    known = np.zeros(nodes, np.bool_)
    if fixed >= 0:
        known[fixed] = True
    layer = graph.inside[members[0]]
    for _sweep in range(2):
        # What lives from step to step takes the layout that is cheapest for the users whose division is known.
        for variable in member_variables:
            if graph.kept[variable]:
                cost = np.zeros(graph.domains[variable])
                touched = False
                for place in range(graph.use_from[variable], graph.use_from[variable + 1]):
                    user, table = graph.use_node[place], graph.use_table[place]
                    if graph.inside[user] != layer or known[user]:
                        touched |= graph.inside[user] == layer
                        start = table_at[table] + labels[first + user] * table_columns[table]
                        cost += tables[start : start + graph.domains[variable]]
                if touched:
                    at, _ = _best(cost)
                    if at < 0:
                        return False
                    labels[variable] = at
        # Each node takes the division of least cost: its own seconds, with what it reads as that lies now, and with
        # what it makes in the layout that is best for the node and for what its known readers wish.
        for node in members:
            count = graph.domains[first + node]
            cost = np.empty(count)
            if node == fixed:
                cost[:] = INFINITE
                cost[labels[first + node]] = 0.0
            else:
                for label in range(count):
                    cost[label] = tables[flat.own_at[node] + label]
            for place in range(flat.in_from[node], flat.in_from[node + 1]):
                table, lies = flat.in_table[place], labels[flat.in_variable[place]]
                for label in range(count):
                    cost[label] += tables[table_at[table] + label * table_columns[table] + lies]
            for place in range(flat.out_from[node], flat.out_from[node + 1]):
                variable, table = flat.out_variable[place], flat.out_table[place]
                if graph.kept[variable]:
                    for label in range(count):
                        cost[label] += tables[table_at[table] + label * table_columns[table] + labels[variable]]
                    continue
                wish = _wish(labels, variable, node, layer, known, tables, table_at, table_columns, first, graph)
                for label in range(count):
                    start = table_at[table] + label * table_columns[table]
                    least = INFINITE
                    for lies in range(len(wish)):
                        whole = tables[start + lies] + wish[lies]
                        if whole < least:
                            least = whole
                    cost[label] += least
            if noise > 0.0:
                for label in range(count):
                    cost[label] *= 1.0 + noise * np.random.random()
            at, _ = _best(cost)
            if at < 0:
                return False
            labels[first + node] = at
            known[node] = True
            for place in range(flat.out_from[node], flat.out_from[node + 1]):
                variable, table = flat.out_variable[place], flat.out_table[place]
                if not graph.kept[variable]:
                    wish = _wish(labels, variable, node, layer, known, tables, table_at, table_columns, first, graph)
                    start = table_at[table] + at * table_columns[table]
                    best, _ = _best(wish + tables[start : start + len(wish)])
                    if best < 0:
                        return False
                    labels[variable] = best
    return True


@compiled(nogil=True)
def _wish(labels, variable, maker, layer, known, tables, table_at, table_columns, first, graph):  # type: ignore[no-untyped-def]
    """What each layout of a value costs those consumers whose division is known."""
    cost = np.zeros(graph.domains[variable])
    for place in range(graph.use_from[variable], graph.use_from[variable + 1]):
        user, table = graph.use_node[place], graph.use_table[place]
        if user != maker and (graph.inside[user] != layer or known[user]):
            start = table_at[table] + labels[first + user] * table_columns[table]
            cost += tables[start : start + len(cost)]
    return cost


@compiled(nogil=True)
def chain(  # type: ignore[no-untyped-def]
    flat, graph, layers, labels, seed, sharpness, proposals, patience, guided
):
    """Metropolis-Hastings (FlexFlow §3.5) from `labels`. Returns the best labels, its seconds, the proposals made and
    accepted, and after which proposal the best was found."""
    np.random.seed(seed)
    nodes = len(flat.own_at)
    first = len(labels) - nodes
    cause = np.full(nodes, -1, np.int64)
    starts, ends = np.zeros(nodes), np.zeros(nodes)
    now = makespan(flat, labels, cause, starts, ends)
    start = now
    best, best_labels, found_at = now, labels.copy(), 0
    path = np.empty(nodes, np.int64)
    length = _critical(cause, ends, path)
    tried = labels.copy()
    accepted, taken = 0, 0
    for taken in range(1, proposals + 1):
        if length and np.random.random() < guided:
            node = path[np.random.randint(length)]
        else:
            node = np.random.randint(nodes)
        # The proposal: another division of the node, its layer completed greedily, in a quarter of the cases by costs
        # with noise.
        tried[:] = labels
        tried[first + node] = np.random.randint(graph.domains[first + node])
        layer = graph.inside[node]
        members = layers.nodes[layers.nodes_from[layer] : layers.nodes_from[layer + 1]]
        variables = layers.values[layers.values_from[layer] : layers.values_from[layer + 1]]
        noise = 0.5 if np.random.random() < 0.25 else 0.0
        if complete(flat, graph, tried, members, variables, node, noise):
            then = makespan(flat, tried, cause, starts, ends)
            # Equation 3.1: what is faster is taken, what is slower with a probability that falls with the loss.
            if then <= now or np.random.random() < np.exp(sharpness * (now - then) / start):
                accepted += 1
                now = then
                labels[:] = tried
                length = _critical(cause, ends, path)
                if now < best * (1 - 1e-9):
                    best, found_at = now, taken
                    best_labels[:] = labels
        if taken - found_at > patience:
            break
    return best_labels, best, taken, accepted, found_at


@compiled(nogil=True)
def _critical(cause, ends, path):  # type: ignore[no-untyped-def]
    """The nodes that lead to the end, the last first; how many."""
    node = np.argmax(ends) if len(ends) else -1
    length = 0
    while node >= 0 and length < len(path):
        path[length] = node
        length += 1
        node = cause[node]
    return length
