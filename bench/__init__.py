"""Measures what the router costs, beside its peers, in the same run."""
