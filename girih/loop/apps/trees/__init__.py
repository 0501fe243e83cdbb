"""Gradient-boosted trees on histograms; `from girih.loop.apps.trees import GradientBoostedTrees`."""

from girih.loop.apps.trees.estimators import GradientBoostedRegressor, GradientBoostedTrees

__all__ = ["GradientBoostedRegressor", "GradientBoostedTrees"]
