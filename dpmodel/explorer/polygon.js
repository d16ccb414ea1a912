// Linear programs in the plane: a polygon is a list of corners, and half-planes cut it.
"use strict";

const Polygon = {
  box: (width, height) => [[0, 0], [width, 0], [width, height], [0, height]],

  // What is left of a polygon where a[0] x + a[1] y <= b.
  cut(corners, a, b) {
    const kept = [];
    corners.forEach((p, i) => {
      const q = corners[(i + 1) % corners.length];
      const [atP, atQ] = [p, q].map(point => a[0] * point[0] + a[1] * point[1] - b);
      if (atP <= 0) kept.push(p);
      if ((atP < 0 && atQ > 0) || (atP > 0 && atQ < 0)) {
        const share = atP / (atP - atQ);
        kept.push([p[0] + share * (q[0] - p[0]), p[1] + share * (q[1] - p[1])]);
      }
    });
    return kept;
  },

  // The corner where c[0] x + c[1] y is largest.
  best(corners, c) {
    return corners.reduce((most, p) => (Polygon.value(p, c) > Polygon.value(most, c) + 1e-12 ? p : most));
  },

  value: (p, c) => c[0] * p[0] + c[1] * p[1],
};
