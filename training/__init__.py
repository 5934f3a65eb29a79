"""One recipe in, one trained model and its scores out; knows nothing of search."""
