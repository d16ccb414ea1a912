"""Problems to learn from."""

from dpmodel.teach.transportation_problem import Transportation, transportation

__all__ = ["Transportation", "transportation"]
