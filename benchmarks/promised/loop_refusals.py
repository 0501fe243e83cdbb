"""What a loop body may not do is named by its own reason: gl.random() in a helper function, an attribute that an
inherited array does not have."""

import sys

import numpy as np

import girih.loop as gl

table = np.arange(4.0)


def drawn():
    return gl.random()


def helped(i, a):
    a[i] = drawn()


def unknown(i, a):
    a[i] = table.no_such


def main() -> str:
    for body, words in ((helped, ("gl.random()", "draw in the body")), (unknown, ("no_such", "cannot compile"))):
        try:
            gl.parallel_for(gl.range(4), workers=1)(body)(gl.array(np.zeros(4)))
        except gl.LoopError as error:
            said = str(error)
            if "loop_refusals.py:" not in said or any(word not in said for word in words) or "only read" in said:
                return f"{body.__name__} is refused for another reason: {said}"
        else:
            return f"{body.__name__} is not refused"
    return ""


problem = main()
if problem:
    print(problem, file=sys.stderr)
sys.exit(bool(problem))
