"""One recipe in, one trained model and its scores out; this package does not import the search."""
