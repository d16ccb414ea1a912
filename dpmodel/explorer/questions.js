// Questions that check the idea just seen, each with a word on every answer.
"use strict";

const QUESTIONS = {
  plane: [
    {
      asks: "One volunteer offers half an hour more. How far does the best plan move?",
      answers: [
        ["Not at all", false, "Drag the handle to its upper end: the dot moves along with the row, by half a visit."],
        ["By half a visit in the clinic", true, "The row moves by 0.5, and the best plan with it. Noise of about that size hides which of the two it was."],
        ["To another corner of the set, far away", false, "That takes a person who can move the row by any amount: choose high sensitivity and drag."],
      ],
    },
    {
      asks: "Twice the epsilon: what becomes of the forecast of noise that is added once?",
      answers: [
        ["It halves", true, "The noise has scale sensitivity / epsilon, and the forecast is a quantile of it."],
        ["It stays", false, "Compare the forecasts at epsilon 1 and 2, with right-hand sides private."],
        ["It is a quarter", false, "That would be noise of variance 1 / epsilon; it is the scale that goes as 1 / epsilon."],
      ],
    },
    {
      asks: "Which feasibility never lets an answer take more hours than there are, in no draw at all?",
      answers: [
        ["relaxed", false, "Relaxed moves the row outwards, so that the true best plan stays possible: answers may take too much."],
        ["safe", false, "Safe keeps the row with probability 95%: draw a few hundred times and count those beyond 0."],
        ["strict", true, "Strict uses noise that ends somewhere and tightens by that much. It costs the most, and needs delta above 0."],
      ],
    },
    {
      asks: "The objective is private, and half a vote tips the best plan from one corner to another. Is that a leak that noise cannot hide?",
      answers: [
        ["Yes: the plan jumps", false, "The plan jumps, but the two corners are almost equally good: a private answer may take either, and loses little."],
        ["No: the worth of the plan only crawls", true, "Low sensitivity is about worth: each corner's worth moves by at most 0.5 times its visits."],
      ],
    },
  ],
  map: [
    {
      asks: "Ten times the people, averages as private numbers. What becomes of the error of noise added once?",
      answers: [
        ["A tenth", true, "One person moves an average by 1 / n, so the noise shrinks with n, and so does the error."],
        ["The square root of a tenth", false, "That is how sampling error shrinks. Privacy noise on an average shrinks as 1 / n: move the slider."],
        ["It stays", false, "Move the slider for n and read the first bars."],
      ],
    },
    {
      asks: "Objective, high: Theorem 37 says no. What makes it a yes, once everybody sees only their own part and prices?",
      answers: [
        ["More noise", false, "No noise is large enough to hide what one record may change by any amount, if all is published."],
        ["Your own part may show your data to you, and prices hardly depend on any one person", true, "What others learn comes from prices alone, and a price is moved by what one person uses, which is limited."],
        ["More people", false, "Choose the cell with the whole answer for everybody: its lower bound does not shrink with n. With own parts the loss does."],
      ],
    },
    {
      asks: "Rows of high sensitivity, one person in each: why is the answer “yes, but for a few rows”?",
      answers: [
        ["The few are the people with the largest numbers", false, "Nobody is singled out: which rows fail must not tell who is in them."],
        ["A person can spoil only their own row", true, "An answer that leaves a few rows out need not change when one row does; with enough people the few are a small share."],
        ["Solvers stop early", false, "It would be so with exact solvers too: keeping every row would show a row that only one person can have put there."],
      ],
    },
    {
      asks: "Why is a column of high sensitivity worse than a row of high sensitivity?",
      answers: [
        ["A column enters every constraint", true, "So one person moves all constraints at once, and leaving a few out does not help."],
        ["There are fewer columns", false, "Take d as large as you like: the lower bound grows with d."],
      ],
    },
  ],
  attack: [
    {
      asks: "The plain solver is exact. Could a clever private mechanism be as exact, at epsilon 1?",
      answers: [
        ["Yes, with the right noise", false, "The lower bound holds for every mechanism, also for those that nobody has found yet."],
        ["No, none", true, "An answer with less error than the lower bound would tell more bits than epsilon 1 allows."],
      ],
    },
    {
      asks: "Randomised response at epsilon 0.1 tells about 47 of 100 bits falsely. What does its solution tell about you?",
      answers: [
        ["Nothing at all", false, "A little: your bit is told truly slightly more often than not. That is what epsilon measures."],
        ["Almost nothing, and that is why it is so bad", true, "Privacy and error are one quantity here: what hides your bit makes the solution wrong in it."],
      ],
    },
  ],
};

(() => {
  let count = 0;

  function card({ asks, answers }) {
    const made = make("fieldset", "question"), told = make("p", "told"), name = `question-${count++}`;
    told.setAttribute("role", "status");
    made.append(make("legend", "", asks), ...answers.map(([text, right, why]) => {
      const label = document.createElement("label"), input = document.createElement("input");
      Object.assign(input, { type: "radio", name });
      input.addEventListener("change", () => {
        told.textContent = `${right ? "Right." : "Not quite."} ${why}`;
        told.dataset.right = right;
      });
      label.append(input, ` ${text}`);
      return label;
    }), told);
    return made;
  }

  for (const place of document.querySelectorAll(".questions")) {
    const box = make("details", ""), cards = make("div", "cards"), questions = QUESTIONS[place.dataset.after];
    box.open = true;
    cards.append(...questions.map(card));
    box.append(make("summary", "", `Check yourself: ${questions.length} questions`), cards);
    place.append(box);
  }
  byId("version").textContent = window.DPMODEL.version;
})();
