// The formulas of cape.privacy that the calculator of choosing-epsilon.md needs, in plain JavaScript.
// tests_browser/test_calculator.py compares every one of them with the library.
// Each kind of noise is an object of its own: gaussian is the one that there is.
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
    // Of those whose row it is, the most that somebody finds who wrongly accuses this part of the others.
    found: (mu, accused) => phi(quantile(accused) + mu),
    // How often a bet between two rows, each as likely as the other, is won at most.
    bet: mu => phi(mu / 2),
  };

  // Variance of the noise in the sum over a trusted curator's at the same privacy.
  const ratios = {
    pooled: () => 1,
    cape: (sites, colluding) => sites / (sites - colluding),
    conventional: sites => sites,
  };

  // The most that one person changes what is asked for, when their row is replaced: in units of the result.
  const moved = {
    count: () => 1,
    mean: ({rows, low, high}) => (high - low) / rows,
    share: ({rows, categories}) => Math.sqrt(2 * (1 - 1 / categories)) / rows,
  };

  // The error of taking these rows from a population: a count is of the rows themselves.
  const sampling = {
    count: () => 0,
    mean: ({rows, sd}) => sd / Math.sqrt(rows),
    share: ({rows, expected}) => Math.sqrt(expected * (1 - expected) / rows),
  };

  // The paper's number of colluding sites, which is the default.
  const colluding = sites => Math.max(Math.ceil(sites / 3) - 1, 0);

  // The standard errors of one release that spends a part of the budget, and what they mean.
  function release(asked) {
    const mu = gaussian.mu(asked.epsilon, asked.delta) * Math.sqrt(asked.part);
    const curator = moved[asked.what](asked) / mu, drawn = sampling[asked.what](asked);
    const schemes = {};
    for (const [scheme, ratio] of Object.entries(ratios)) {
      const noise = curator * Math.sqrt(ratio(asked.sites, asked.colluding));
      const total = Math.hypot(noise, drawn);
      schemes[scheme] = {noise, total, half: -quantile(0.025) * total, worth: asked.rows * (drawn / total) ** 2};
    }
    return {mu, sampling: drawn, half: -quantile(0.025) * drawn, schemes};
  }

  // The epsilon of the whole budget with which the noise of cape is this small.
  function needed(asked, noise) {
    const ratio = ratios.cape(asked.sites, asked.colluding);
    const mu = moved[asked.what](asked) * Math.sqrt(ratio / asked.part) / noise;
    return gaussian.epsilon(asked.delta, mu);
  }

  return {gaussian, phi, quantile, ratios, colluding, release, needed};
})();
if (typeof module !== "undefined") module.exports = capePrivacy;
