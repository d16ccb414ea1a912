"""Footprint -> cell of the taxonomy: which private linear program a problem is, and whether it can be solved."""

from dpmodel.classify.taxonomy import Taxonomy, TaxonomyCell

__all__ = ["Taxonomy", "TaxonomyCell"]
