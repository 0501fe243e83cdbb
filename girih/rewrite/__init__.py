"""Graph → Graph: rewrites that keep what is computed.

`apply(graph, passes)` rewrites; `check` holds a rewritten graph against the one before, by its law and what enters and
leaves. `passes/` has the fixed rewrites, one to a file.
"""

from girih.rewrite.rewriting import Pass, RewriteError, apply, check

__all__ = ["Pass", "RewriteError", "apply", "check"]
