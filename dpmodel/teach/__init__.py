"""Teaching: ``quiz`` asks for cells of Table 1, ``demonstrate`` runs the attack, ``figure`` draws the lower bound."""

from dpmodel.teach.demonstration import demonstrate
from dpmodel.teach.lower_bound_figure import figure
from dpmodel.teach.quiz import Question, quiz
from dpmodel.teach.transportation_problem import Transportation, transportation

__all__ = ["Question", "Transportation", "demonstrate", "figure", "quiz", "transportation"]
