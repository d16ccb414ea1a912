// Noise for looking at, from numbers in (0, 1): the package draws its own exactly.
"use strict";

const Random = {
  // A generator with a seed (mulberry32), so that everybody sees the same first draws.
  from(seed) {
    let state = seed >>> 0;
    return () => {
      state = (state + 0x6d2b79f5) >>> 0;
      let mixed = Math.imul(state ^ (state >>> 15), state | 1);
      mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
      return (((mixed ^ (mixed >>> 14)) >>> 0) + 0.5) / 4294967296;
    };
  },

  // Laplace noise of this scale at the quantile u.
  laplace(u, scale) {
    return u < 0.5 ? scale * Math.log(2 * u) : -scale * Math.log(2 * (1 - u));
  },

  // The same, conditioned on [-width, width]; no width: no condition.
  truncated(u, scale, width) {
    if (width === null) return Random.laplace(u, scale);
    const outside = Math.exp(-width / scale) / 2;
    return Random.laplace(outside + u * (1 - 2 * outside), scale);
  },

  // The least value that a share of at least `share` of the values does not pass.
  quantile(values, share) {
    const sorted = [...values].sort((a, b) => a - b);
    return sorted[Math.ceil(share * sorted.length - 1e-9) - 1];
  },
};
