// The calculator of choosing-epsilon.md: reads the form, asks capePrivacy, writes a table and three sentences.
(() => {
  "use strict";
  const form = document.getElementById("calculator");
  if (!form) return;
  const field = name => form.elements.namedItem(name);
  const limits = {  // field -> what is wrong with a number, or nothing
    epsilon: x => x > 0 && x <= 50 ? "" : "Epsilon must be above 0 and at most 50.",
    delta: x => x === 0 || x >= 1e-15 && x < 0.5 ? "" : "Delta must be at least 1e-15 and below 0.5, or left empty.",
    part: x => x > 0 && x <= 100 ? "" : "The share must be above 0 and at most 100 percent.",
    rows: x => x >= 1 && x <= 1e12 && Number.isInteger(x) ? "" : "The number of rows must be a whole number from 1 on.",
    sites: x => x >= 2 && x <= 10000 && Number.isInteger(x) ? "" : "The number of sites must be a whole number from 2 on.",
    colluding: (x, all) => x >= 0 && x < all.sites && Number.isInteger(x) ? ""
      : "Colluding sites must be a whole number, fewer than the sites.",
    low: x => Number.isFinite(x) ? "" : "The lower bound must be a number.",
    high: (x, all) => x > all.low ? "" : "The upper bound must be above the lower bound.",
    sd: (x, all) => x > 0 && x <= (all.high - all.low) / 2 ? ""
      : "The standard deviation must be above 0 and at most half of the range.",
    categories: x => x >= 2 && x <= 10000 && Number.isInteger(x) ? "" : "There must be at least 2 categories.",
    expected: x => x > 0 && x < 100 ? "" : "The expected share must be between 0 and 100 percent.",
  };
  const only = {low: "mean", high: "mean", sd: "mean", categories: "share", expected: "share"};

  const digits = (x, n = 3) => {
    if (x !== 0 && (Math.abs(x) < 1e-4 || Math.abs(x) >= 1e7)) return x.toExponential(n - 1);
    const places = x === 0 ? 0 : Math.max(n - 1 - Math.floor(Math.log10(Math.abs(x))), 0);
    return x.toLocaleString("en", {minimumFractionDigits: places, maximumFractionDigits: places});
  };
  const percent = (x, n = 3) => digits(100 * x, n) + "%";
  const atMost = x => (Math.ceil(1000 * x - 1e-9) / 10).toFixed(1) + "%";  // as cape.show.numbers has it
  const element = (tag, text, more = {}) => Object.assign(document.createElement(tag), {textContent: text}, more);

  function read() {
    const asked = {what: field("what").value};
    for (const name of Object.keys(limits)) {
      const text = field(name).value.trim();
      asked[name] = text !== "" ? Number(text) : name === "delta" ? 0 : NaN;
    }
    let wrong = "";
    for (const [name, check] of Object.entries(limits)) {
      const used = !only[name] || only[name] === asked.what;
      const problem = used ? check(asked[name], asked) : "";
      field(name).setAttribute("aria-invalid", problem ? "true" : "false");
      wrong = wrong || problem;
    }
    asked.part /= 100;
    asked.expected /= 100;
    return {asked, wrong};
  }

  function show() {
    const what = field("what").value;
    for (const box of form.querySelectorAll("[data-for]")) box.hidden = box.dataset.for !== what;
    const {asked, wrong} = read();
    form.querySelector(".wrong").textContent = wrong;
    form.querySelector("output").hidden = wrong !== "";
    if (wrong) return;
    const found = capePrivacy.release(asked);
    const unit = x => what === "share" ? digits(100 * x) + " points" : digits(x);
    const rows = [
      ["cape", `CAPE, ${asked.colluding} of ${asked.sites} sites colluding`],
      ["pooled", "a trusted curator with all rows"],
      ["conventional", "conventional: every site its own noise"],
    ];
    const body = form.querySelector("tbody"), widest = found.schemes.conventional.half;
    body.replaceChildren();
    for (const [scheme, label] of rows) {
      const one = found.schemes[scheme], row = element("tr", "", {className: scheme === "cape" ? "own" : ""});
      const bar = element("span", "", {className: "bar"});
      bar.style.width = `${100 * one.half / widest}%`;
      const cell = element("td", "", {className: "bars"});
      cell.append(bar);
      row.append(element("th", label, {scope: "row"}), element("td", unit(one.noise)), element("td", "± " + unit(one.half)));
      row.append(element("td", what === "count" ? "–" : digits(one.worth, Math.max(3, Math.ceil(Math.log10(one.worth + 1))))));
      row.append(cell);
      row.dataset.scheme = scheme;
      row.dataset.noise = one.noise;
      body.append(row);
    }
    const budget = form.querySelector("[data-says=budget]");
    budget.textContent = (found.law === "gaussian" ? `The budget is mu = ${digits(found.budget, 4)}, with Gaussian noise. `
      : "A budget without delta is pure: the noise is Laplace's. ")
      + `Somebody who knows every other row and bets on which of two rows is a person's wins at most `
      + `${atMost(found.bet)} of such bets; blind guessing wins 50%. `
      + `Somebody who may accuse 5% wrongly finds at most ${percent(found.found)} of those whose row it is; `
      + `blind guessing finds 5%.`;
    budget.dataset.law = found.law;
    budget.dataset.budget = found.budget;
    const sampling = form.querySelector("[data-says=sampling]");
    sampling.textContent = what === "count"
      ? "A count is of the rows themselves, so it has no sampling error: the interval is the noise alone."
      : `Without any noise the interval would be ± ${unit(found.half)}, from sampling alone.`;
    const goal = found.sampling > 0 ? found.sampling / 2 : Math.max(0.005 * asked.rows, 1e-9);
    const epsilon = capePrivacy.needed(asked, goal);
    const needed = form.querySelector("[data-says=needed]");
    needed.textContent = (what === "count"
      ? `For noise of 0.5% of the rows, a standard deviation of ${unit(goal)}, `
      : `For noise half as large as the sampling error, which widens the interval by about 12%, `)
      + `the study would need epsilon = ${digits(epsilon)} with this share${asked.delta ? " and delta" : ", without delta"}.`;
    needed.dataset.epsilon = epsilon;
  }

  let chosen = false;  // until somebody chooses, colluding follows the number of sites as the default does
  form.addEventListener("input", event => {
    if (event.target === field("colluding")) chosen = true;
    if (event.target === field("sites") && !chosen) {
      const sites = Number(field("sites").value);
      if (Number.isInteger(sites) && sites >= 2) field("colluding").value = capePrivacy.colluding(sites);
    }
    show();
  });
  form.addEventListener("submit", event => event.preventDefault());
  form.hidden = false;
  show();
})();
