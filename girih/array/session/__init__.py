"""Clusters, plans, limits of memory, what is shown; loaded with the first large work."""

from girih.run.worker.pages import large_pages

large_pages()  # before the kernels are loaded, which make tensors: from its first on PyTorch looks for this no more
