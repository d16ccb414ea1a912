"""Teaching: ``quiz`` asks for cells, ``gadgets`` are programs that leak, ``demonstrate`` attacks, ``figure`` draws."""

from dpmodel.teach import gadgets
from dpmodel.teach.demonstration import demonstrate
from dpmodel.teach.lower_bound_figure import figure
from dpmodel.teach.lower_bounds import Transportation, transportation
from dpmodel.teach.quiz import Question, quiz

__all__ = ["Question", "Transportation", "demonstrate", "figure", "gadgets", "quiz", "transportation"]
