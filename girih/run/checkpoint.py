"""Checkpoints in the format of torch.distributed.checkpoint (DCP), sharded as the program divides.

Each worker writes the boxes that it reports (of equal copies the lowest rank writes), and reads whatever boxes it
needs under its own program: a run may be resumed with other divisions or another number of devices. The entries are
keyed by path, as in the module's state_dict, and DCP's own tools read the result
(`torch.distributed.checkpoint.format_utils.dcp_to_torch_save`).

DCP's usual entry points plan by collectives. Here the program already says who holds what, so that its writer and
reader are called directly with plans made from it: no process group is needed, and threads do it too. The parent
writes into a directory beside the goal and renames it at the end: a checkpoint is there whole or not at all.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from girih.lower import Program
from girih.run.initial import key_of
from girih.run.parts import Tensor, box_of, reporters, shape_of

SUMMARY = "girih.json"
FORMAT = 1


class CheckpointError(ValueError):
    """A directory that holds no checkpoint for this program."""


@dataclass(frozen=True)
class Summary:
    """Beside DCP's files: how many steps were done, and the seed of the run."""

    step: int
    seed: int
    format: int = FORMAT


# ------------------------------------------------------------------------------------------- writing


def write(directory: str, program: Program, rank: int, state: Mapping[str, Tensor]) -> list[Any]:
    """Write this worker's boxes; DCP's results, for `finish`."""
    from torch.distributed.checkpoint import FileSystemWriter, SavePlan

    boxes: dict[Any, Tensor] = {}
    items = []
    for item in program.graph.state_inputs:
        if rank in reporters(program, item.name):
            written = _write_item(program, item.name, key_of(item), rank)
            boxes[written.index] = state[item.name]
            items.append(written)
    writer = FileSystemWriter(directory)
    writer.set_up_storage_writer(rank == 0)
    # The n-th of the global plans is rank n's: its files are named after it.
    plans = writer.prepare_global_plan([SavePlan([]) for _ in range(rank)] + [SavePlan(items)])
    if not items:
        return []
    results = writer.write_data(plans[rank], _planner(boxes))
    return list(results.wait())


def _planner(boxes: dict[Any, Tensor]) -> Any:
    from torch.distributed.checkpoint import DefaultSavePlanner

    class Boxes(DefaultSavePlanner):
        """Gives DCP's writer the tensor of each item."""

        def resolve_data(self, write_item: Any) -> Tensor:
            return boxes[write_item.index].detach().cpu().contiguous()

    return Boxes()


def _chunk(box: Sequence[tuple[int, int]]) -> Any:
    from torch.distributed.checkpoint.metadata import ChunkStorageMetadata

    return ChunkStorageMetadata(torch.Size([start for start, _ in box]), torch.Size([b - a for a, b in box]))


def _write_item(program: Program, name: str, key: str, rank: int) -> Any:
    from torch.distributed.checkpoint.metadata import MetadataIndex, TensorProperties
    from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

    value = program.graph.values[name]
    chunk = _chunk(box_of(program, name, rank))
    data = TensorWriteData(chunk, TensorProperties(dtype=getattr(torch, value.dtype)), torch.Size(value.shape))
    index = MetadataIndex(key, chunk.offsets, reporters(program, name).index(rank))
    return WriteItem(index=index, type=WriteItemType.SHARD, tensor_data=data)


def finish(directory: Path, program: Program, results: Iterable[list[Any]], summary: Summary) -> None:
    """Write what DCP reads first: all entries, their chunks, and the files they are in."""
    from torch.distributed.checkpoint import FileSystemWriter
    from torch.distributed.checkpoint.metadata import Metadata, TensorProperties, TensorStorageMetadata

    entries = {}
    for item in program.graph.state_inputs:
        value = program.graph.values[item.name]
        chunks = [_chunk(box_of(program, item.name, rank)) for rank in reporters(program, item.name)]
        properties = TensorProperties(dtype=getattr(torch, value.dtype))
        entries[key_of(item)] = TensorStorageMetadata(properties, torch.Size(value.shape), chunks)
    writer = FileSystemWriter(directory)
    writer.finish(Metadata(entries), list(results))
    (directory / SUMMARY).write_text(json.dumps(asdict(summary)) + "\n")


def beside(goal: Path) -> Path:
    """Where to write before it is renamed: on the same file system, and the same name on every rank."""
    return goal.with_name(f".{goal.name}.writing")


def clear(made: Path) -> None:
    """An empty directory, whatever an interrupted save has left there."""
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)


def publish(made: Path, goal: Path) -> None:
    """Rename a finished directory to its goal; an old checkpoint there is replaced.

    Raises:
        CheckpointError: the goal is something else than a checkpoint.
    """
    check_goal(goal)
    if goal.exists():
        old = goal.with_name(f".{goal.name}.{os.getpid()}.old")
        goal.rename(old)
        made.rename(goal)
        shutil.rmtree(old)
    else:
        made.rename(goal)


def check_goal(goal: Path) -> None:
    """A checkpoint may be written here.

    Raises:
        CheckpointError: there is something that is no checkpoint.
    """
    if goal.exists() and not (goal.is_dir() and ((goal / SUMMARY).exists() or not any(goal.iterdir()))):
        raise CheckpointError(f"{goal} exists and is no checkpoint: it is left alone; give another directory")


# ------------------------------------------------------------------------------------------- reading


def read_summary(directory: str | Path) -> Summary:
    """How far the run had come.

    Raises:
        CheckpointError: no checkpoint there, or of another format.
    """
    path = Path(directory) / SUMMARY
    if not path.exists() or not (Path(directory) / ".metadata").exists():
        raise CheckpointError(f"{directory} holds no checkpoint: {SUMMARY} and .metadata are what one has")
    found = json.loads(path.read_text())
    if found.get("format") != FORMAT:
        raise CheckpointError(f"{directory} has format {found.get('format')}, this version reads {FORMAT}")
    return Summary(int(found["step"]), int(found["seed"]))


def entries(directory: str | Path) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of each entry by path."""
    from torch.distributed.checkpoint import FileSystemReader

    metadata = FileSystemReader(directory).read_metadata()
    return {
        key: (tuple(entry.size), str(entry.properties.dtype).removeprefix("torch."))
        for key, entry in metadata.state_dict_metadata.items()
        if hasattr(entry, "chunks")
    }


def check_entries(directory: str | Path, program: Program, others: Iterable[str]) -> list[str]:
    """The paths of the program's state that the checkpoint holds.

    others: paths that it need not hold.

    Raises:
        CheckpointError: entries are missing, or have another shape or dtype.
    """
    held, spare = entries(directory), set(others)
    found = []
    for item in program.graph.state_inputs:
        key, value = key_of(item), program.graph.values[item.name]
        if key not in held:
            if key not in spare:
                raise CheckpointError(f"{directory} holds no {key!r}; it has {sorted(held)[:8]}")
            continue
        if held[key] != (value.shape, value.dtype):
            shape, dtype = held[key]
            raise CheckpointError(
                f"{directory}: {key!r} is {dtype}{list(shape)}, the program has {value.dtype}{list(value.shape)}"
            )
        found.append(key)
    return found


def read(directory: str, program: Program, rank: int, paths: Iterable[str]) -> dict[str, Tensor]:
    """This worker's boxes, by input name; only the chunks that they meet are read."""
    from torch.distributed.checkpoint import DefaultLoadPlanner, FileSystemReader, LoadPlan
    from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

    reader = FileSystemReader(directory)
    metadata = reader.read_metadata()
    reader.set_up_storage_reader(metadata, rank == 0)
    wanted = set(paths)
    parts: dict[str, Tensor] = {}
    by_key: dict[str, Tensor] = {}
    items = []
    for item in program.graph.state_inputs:
        if key_of(item) not in wanted:
            continue
        value, box = program.graph.values[item.name], box_of(program, item.name, rank)
        part = torch.empty(shape_of(box), dtype=getattr(torch, value.dtype))
        parts[item.name] = by_key[key_of(item)] = part
        if part.numel():
            entry = metadata.state_dict_metadata[key_of(item)]
            items += create_read_items_for_chunk_list(key_of(item), entry, [_chunk(box)])

    class Boxes(DefaultLoadPlanner):
        """Gives DCP's reader the place of each item."""

        def resolve_tensor(self, read_item: Any) -> Tensor:
            part = by_key[read_item.dest_index.fqn]
            for dimension, (start, length) in enumerate(zip(read_item.dest_offsets, read_item.lengths, strict=True)):
                part = part.narrow(dimension, start, length)
            return part

        def commit_tensor(self, read_item: Any, tensor: Tensor) -> None:
            pass

    reader.read_data(LoadPlan(items), Boxes()).wait()
    return parts
