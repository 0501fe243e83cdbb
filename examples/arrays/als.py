"""Alternating least squares: features of users and of movies whose products are the ratings (Zhou et al. 2008).

python examples/arrays/als.py [--users 2000] [--movies 800] [--features 10] [--iterations 5]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy

import girih.array


def data(
    users: int = 2000, movies: int = 800, features: int = 10, known: float = 0.2, seed: int = 0
) -> tuple[numpy.ndarray, ...]:
    """Ratings from 1 to 5, 0 where nobody has rated, of users and movies with hidden tastes; and features to begin."""
    random = numpy.random.default_rng(seed)
    tastes = random.normal(size=(users, features)) @ random.normal(size=(features, movies)) / features**0.5
    ratings = numpy.clip(numpy.rint(3 + tastes + 0.3 * random.normal(size=tastes.shape)), 1, 5)
    return ratings * (random.random(tastes.shape) < known), random.random((movies, features))


def regressions(np: Any, ratings: Any, rated: Any, features: Any, penalty: float) -> Any:
    """Of each row of the ratings, the ridge regression of what it has rated on the features."""
    count, size = features.shape
    products = (features[:, :, None] * features[:, None, :]).reshape(count, size * size)
    squares = (rated @ products).reshape(rated.shape[0], size, size)
    ridge = penalty * rated.sum(1)[:, None, None] * np.eye(size)
    return np.linalg.solve(squares + ridge, (ratings @ features)[:, :, None])[:, :, 0]


def run(np: Any, ratings: Any, of_movies: Any, iterations: int = 5, penalty: float = 0.065) -> Any:
    """Features of the users and of the movies."""
    rated = (ratings > 0).astype(ratings.dtype)
    for _ in range(iterations):
        of_users = regressions(np, ratings, rated, of_movies, penalty)
        of_movies = regressions(np, ratings.T, rated.T, of_users, penalty)
    return of_users, of_movies


def main(argv: list[str] | None = None) -> tuple[Any, Any]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=2000)
    parser.add_argument("--movies", type=int, default=800)
    parser.add_argument("--features", type=int, default=10)
    parser.add_argument("--iterations", type=int, default=5)
    options = parser.parse_args(argv)
    np = girih.array
    ratings, start = map(np.array, data(options.users, options.movies, options.features))
    of_users, of_movies = run(np, ratings, start, options.iterations)
    error = np.where(ratings > 0, of_users @ of_movies.T - ratings, 0)
    print(f"ratings are met to {float(((error**2).sum() / (ratings > 0).sum()) ** 0.5):.3f} in the mean")
    return of_users, of_movies


if __name__ == "__main__":
    main()
