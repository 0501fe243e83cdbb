"""What is raised for graphs that are none."""


class DataError(ValueError):
    """Something is wrong with a graph, or with what is known of its vertices; names file and line, or the vertex."""
