"""From a loop body to compiled code, and from an iteration space to blocks of entries in the order they are run."""
