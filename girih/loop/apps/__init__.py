"""Applications on loops and tables, with scikit-learn's conventions."""
