// The formulas of cape.privacy that the calculator of choosing-epsilon.md needs, in plain JavaScript.
// tests/browser/test_calculator.py compares every one of them with the library.
const capePrivacy = (() => {
  "use strict";
  const SQRT2 = Math.sqrt(2), SQRT_PI = Math.sqrt(Math.PI);
  const NODES = [0.3399810435848563, 0.8611363115940526], WEIGHTS = [0.6521451548625461, 0.3478548451374538];

  // e^(x²) erfc(x): a series of positive terms below 2, a continued fraction from there on.
  function erfcx(x) {
    if (x < 0) return 2 * Math.exp(x * x) - erfcx(-x);
    if (x < 2) {
      let term = x, sum = x;
      for (let n = 1; Math.abs(term) > 1e-18 * sum && n < 200; n++) {
        term *= 2 * x * x / (2 * n + 1);
        sum += term;
      }
      return Math.exp(x * x) - 2 / SQRT_PI * sum;
    }
    let tail = x;
    for (let k = 160; k >= 1; k--) tail = x + k / 2 / tail;
    return 1 / (SQRT_PI * tail);
  }

  // The standard normal distribution, and its inverse.
  const phi = x => x > 0 ? 1 - phi(-x) : 0.5 * Math.exp(-x * x / 2) * erfcx(-x / SQRT2);
  function quantile(p) {
    return p > 0.5 ? -quantile(1 - p) : search(-40, 0, x => phi(x) < p);
  }

  // The point between low and high from which on `below` is false.
  function search(low, high, below) {
    for (let i = 0; i < 200; i++) {
      const middle = (low + high) / 2;
      if (middle <= low || middle >= high) break;
      if (below(middle)) low = middle;
      else high = middle;
    }
    return (low + high) / 2;
  }

  // erfcx(u) - erfcx(u + h). Where h is small the difference cancels, so its derivative is integrated instead.
  function gap(u, h) {
    if (h >= 0.1) return erfcx(u) - erfcx(u + h);
    let total = 0;
    NODES.forEach((node, i) => {
      for (const sign of [-1, 1]) {
        const x = u + h / 2 + sign * node * h / 2;
        total += WEIGHTS[i] * (1 / SQRT_PI - x * erfcx(x));
      }
    });
    return h * total;
  }

  // Each kind of noise says: what a budget is worth, the noise of a curator who spends a part of it on what one
  // person changes, how far 95% of noise and sampling error reach, what an adversary can do, and which epsilon is
  // needed. Gaussian noise is scaled by the L2 norm of the change (`l2`), Laplace noise by the L1 norm (`l1`).
  const gaussian = {
    // The smallest delta at which a release of this mu is (epsilon, delta)-private (Balle and Wang 2018).
    delta(epsilon, mu) {
      const h = mu / SQRT2, u = (epsilon / mu - mu / 2) / SQRT2;
      if (u < 0 && h >= 0.1) return 1 - 0.5 * Math.exp(-u * u) * (erfcx(-u) + erfcx(u + h));
      return 0.5 * Math.exp(-u * u) * gap(u, h);
    },
    // What a budget allows: the largest mu that is (epsilon, delta)-private.
    mu: (epsilon, delta) =>
      Math.exp(search(Math.log(1e-9), Math.log(1e4), log => gaussian.delta(epsilon, Math.exp(log)) < delta)),
    // The smallest epsilon at which a release of this mu is (epsilon, delta)-private.
    epsilon: (delta, mu) => search(0, mu * mu / 2 + 40 * mu, epsilon => gaussian.delta(epsilon, mu) > delta),
    worth: ({epsilon, delta}) => gaussian.mu(epsilon, delta),
    noise: ({l2}, worth, part) => l2 / (worth * Math.sqrt(part)),
    half: (noise, sampling) => -quantile(0.025) * Math.hypot(noise, sampling),
    // Of those whose row it is, the most that somebody finds who wrongly accuses this part of the others.
    found: (mu, accused) => phi(quantile(accused) + mu),
    // How often a bet between two rows, each as likely as the other, is won at most.
    bet: mu => phi(mu / 2),
    needed: ({l2}, noise, part, delta) => gaussian.epsilon(delta, l2 / (noise * Math.sqrt(part))),
  };

  const laplace = {
    worth: ({epsilon}) => epsilon,
    noise: ({l1}, worth, part) => SQRT2 * l1 / (worth * part),
    // The noise is Gaussian with a gamma variance of this shape (1 for Laplace's law itself), as in cape.stats.law.
    half(noise, sampling, shape) {
      if (shape > 100) return gaussian.half(noise, sampling);
      const nodes = variances(shape);
      const beyond = x => nodes.reduce(
        (sum, [variance, weight]) => sum + weight * phi(-x / Math.sqrt(noise * noise * variance + sampling * sampling)), 0);
      return search(0, 10 * Math.hypot(noise, sampling), x => beyond(x) > 0.025);
    },
    found: (epsilon, accused) => Math.min(Math.exp(epsilon) * accused, 1 - (1 - accused) / Math.exp(epsilon)),
    bet: epsilon => 1 / (1 + Math.exp(-epsilon)),
    needed: ({l1}, noise, part) => SQRT2 * l1 / (noise * part),
  };

  // Nodes and weights of a gamma variable of this shape with mean 1.
  function variances(shape) {
    const most = Math.log(shape + 12 * Math.sqrt(shape) + 45), nodes = [];
    for (let i = 0; i < 181; i++) {
      const t = -4.6 + (most + 4.6) * i / 180, log = t - Math.exp(-t);
      nodes.push([Math.exp(log) / shape, shape * log - Math.exp(log) + Math.log1p(Math.exp(-t))]);
    }
    const top = Math.max(...nodes.map(node => node[1]));
    const total = nodes.reduce((sum, node) => sum + Math.exp(node[1] - top), 0);
    return nodes.map(([variance, log]) => [variance, Math.exp(log - top) / total]);
  }

  // Variance of the noise in the sum over a trusted curator's at the same privacy.
  const ratios = {
    pooled: () => 1,
    cape: (sites, colluding) => sites / (sites - colluding),
    conventional: sites => sites,
  };

  // The part of a release of one numeric column that pays for how many of its cells lie outside the bounds.
  const outside = {gaussian: 0.005, laplace: 0.01};

  // The most that one person changes what is asked for, when their row is replaced, in units of the result; and
  // how much of the noise of single numbers is in it, as weights: the shares of a column add up to 1.
  const moved = {
    count: () => ({l2: 1, l1: 1, weights: [1]}),
    mean({rows, low, high}) {
      const whole = (high - low) / rows;
      return {l2: whole / Math.sqrt(1 - outside.gaussian), l1: whole / (1 - outside.laplace), weights: [1]};
    },
    share({rows, categories}) {
      const kept = Math.sqrt(1 - 1 / categories), weights = Array(categories - 1).fill(1 / categories);
      return {l2: SQRT2 * kept / rows, l1: 2 * kept / rows, weights: [1 - 1 / categories, ...weights]};
    },
  };

  // The error of taking these rows from a population: a count is of the rows themselves.
  const sampling = {
    count: () => 0,
    mean: ({rows, sd}) => sd / Math.sqrt(rows),
    share: ({rows, expected}) => Math.sqrt(expected * (1 - expected) / rows),
  };

  // The paper's number of colluding sites, which is the default.
  const colluding = sites => Math.max(Math.ceil(sites / 3) - 1, 0);

  // A sum of independent noises has the shape with the same kurtosis.
  function combined(shape, weights) {
    const squares = weights.map(weight => weight * weight);
    return shape * squares.reduce((a, b) => a + b) ** 2 / squares.reduce((sum, square) => sum + square * square, 0);
  }

  // The standard errors of one release that spends a part of the budget, and what they mean. A budget without delta
  // pays for Laplace noise.
  function release(asked) {
    const law = asked.delta > 0 ? gaussian : laplace, worth = law.worth(asked);
    const change = moved[asked.what](asked), drawn = sampling[asked.what](asked);
    const curator = law.noise(change, worth, asked.part);
    const schemes = {};
    for (const [scheme, ratio] of Object.entries(ratios)) {
      const times = ratio(asked.sites, asked.colluding), noise = curator * Math.sqrt(times);
      const half = law.half(noise, drawn, combined(times, change.weights));
      schemes[scheme] = {noise, half, worth: asked.rows * drawn ** 2 / (noise ** 2 + drawn ** 2)};
    }
    return {
      law: law === gaussian ? "gaussian" : "laplace",
      budget: worth, bet: law.bet(worth), found: law.found(worth, 0.05),
      sampling: drawn, half: gaussian.half(0, drawn), schemes,
    };
  }

  // The epsilon of the whole budget with which the noise of cape is this small.
  function needed(asked, noise) {
    const law = asked.delta > 0 ? gaussian : laplace;
    const curator = noise / Math.sqrt(ratios.cape(asked.sites, asked.colluding));
    return law.needed(moved[asked.what](asked), curator, asked.part, asked.delta);
  }

  return {gaussian, laplace, phi, quantile, ratios, colluding, release, needed};
})();
if (typeof module !== "undefined") module.exports = capePrivacy;
