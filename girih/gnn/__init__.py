"""Graph networks: full-graph training and inference over many devices (ROC, Jia et al. 2020, chapter 4)."""
