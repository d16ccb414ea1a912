"""Query release: marginals and other linear queries of one table, as a private linear program."""

from dpmodel.marks.domain import Domain
from dpmodel.queries.query_release import MarginalAnswer, QueryRelease, query_release

__all__ = ["Domain", "MarginalAnswer", "QueryRelease", "query_release"]
