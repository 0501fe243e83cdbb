"""The loops' bodies: what one sample, or one rating, does. girih.loop analyses and compiles them.

Steps of AdaGrad (Duchi et al. 2011) divide each element's step by the root of its gradients' sum of squares.
"""

import numpy as np


def binary_residual(weights, sample):  # type: ignore[no-untyped-def]
    """The derivative of a sample's weighted log loss by its score."""
    label, weight, ids, values = sample
    score = 0.0
    for k in range(len(ids)):
        score += weights[ids[k]] * values[k]
    return weight * (1 / (1 + np.exp(-score)) - label)


def binary(key, sample, weights, buffered, pull, step):  # type: ignore[no-untyped-def]
    label, weight, ids, values = sample
    residual = binary_residual(weights, sample)  # type: ignore[no-untyped-call]
    for k in range(len(ids)):
        buffered[ids[k]] -= step * (residual * values[k] + weight * pull[ids[k]] * weights[ids[k]])


def binary_adagrad(key, sample, weights, buffered, squares, squared, pull, step):  # type: ignore[no-untyped-def]
    label, weight, ids, values = sample
    residual = binary_residual(weights, sample)  # type: ignore[no-untyped-call]
    for k in range(len(ids)):
        gradient = residual * values[k] + weight * pull[ids[k]] * weights[ids[k]]
        squared[ids[k]] += gradient * gradient
        buffered[ids[k]] -= step * gradient / np.sqrt(squares[ids[k]] + gradient * gradient + 1e-12)


def binary_gradient(key, sample, weights, buffered, pull):  # type: ignore[no-untyped-def]
    label, weight, ids, values = sample
    residual = binary_residual(weights, sample)  # type: ignore[no-untyped-call]
    for k in range(len(ids)):
        buffered[ids[k]] += residual * values[k] + weight * pull[ids[k]] * weights[ids[k]]


def multinomial_residuals(weights, sample, classes):  # type: ignore[no-untyped-def]
    """The derivatives of a sample's weighted loss by its classes' scores."""
    label, weight, ids, values = sample
    scores = np.zeros(classes)
    for k in range(len(ids)):
        for c in range(classes):
            scores[c] += weights[ids[k], c] * values[k]
    largest = scores.max()
    total = 0.0
    for c in range(classes):
        scores[c] = np.exp(scores[c] - largest)
        total += scores[c]
    for c in range(classes):
        scores[c] = weight * (scores[c] / total - (1.0 if c == label else 0.0))
    return scores


def multinomial(key, sample, weights, buffered, pull, classes, step):  # type: ignore[no-untyped-def]
    label, weight, ids, values = sample
    residuals = multinomial_residuals(weights, sample, classes)  # type: ignore[no-untyped-call]
    for k in range(len(ids)):
        for c in range(classes):
            buffered[ids[k], c] -= step * (residuals[c] * values[k] + weight * pull[ids[k]] * weights[ids[k], c])


def multinomial_adagrad(key, sample, weights, buffered, squares, squared, pull, classes, step):  # type: ignore[no-untyped-def]
    label, weight, ids, values = sample
    residuals = multinomial_residuals(weights, sample, classes)  # type: ignore[no-untyped-call]
    for k in range(len(ids)):
        for c in range(classes):
            gradient = residuals[c] * values[k] + weight * pull[ids[k]] * weights[ids[k], c]
            squared[ids[k], c] += gradient * gradient
            buffered[ids[k], c] -= step * gradient / np.sqrt(squares[ids[k], c] + gradient * gradient + 1e-12)


def multinomial_gradient(key, sample, weights, buffered, pull, classes):  # type: ignore[no-untyped-def]
    label, weight, ids, values = sample
    residuals = multinomial_residuals(weights, sample, classes)  # type: ignore[no-untyped-call]
    for k in range(len(ids)):
        for c in range(classes):
            buffered[ids[k], c] += residuals[c] * values[k] + weight * pull[ids[k]] * weights[ids[k], c]


def revision(step):  # type: ignore[no-untyped-def]
    """AdaRevision's step for a buffer: further numbers are z and z', which begin as 1 (McMahan and Streeter 2014).

    All gradients that a buffer adds up were computed from the same values, so that none was missed, and their sum is
    one gradient: the larger it is, the smaller the steps that follow.
    """

    def revise(value, gradient, further):  # type: ignore[no-untyped-def]
        further[0] += gradient * gradient
        further[1] = max(further[1], further[0])
        return value - step * gradient / np.sqrt(further[1])

    return revise


def rating(key, v, W, H, step, l2):  # type: ignore[no-untyped-def]
    i, j = key
    d = v - W[i] @ H[j]
    W[i], H[j] = W[i] + step * (d * H[j] - l2 * W[i]), H[j] + step * (d * W[i] - l2 * H[j])


def rating_adagrad(key, v, W, H, SW, SH, rank, step, l2):  # type: ignore[no-untyped-def]
    i, j = key
    d = v - W[i] @ H[j]
    for k in range(rank):
        w, h = W[i, k], H[j, k]
        a, b = l2 * w - d * h, l2 * h - d * w
        SW[i, k] += a * a
        SH[j, k] += b * b
        W[i, k] = w - step * a / np.sqrt(SW[i, k] + 1e-12)
        H[j, k] = h - step * b / np.sqrt(SH[j, k] + 1e-12)
