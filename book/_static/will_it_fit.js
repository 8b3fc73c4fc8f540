// "Will it fit?": evaluates the planner's coefficients. What it knows: a sum, a maximum, a
// stated condition, and bytes times seconds per byte. Every formula comes with the data.
"use strict";

const fit = {};
globalThis.willItFit = fit; // a test calls it by this name

fit.value = (poly, batch, seq, window) => {
  const short = window ? Math.min(seq, window) : seq;
  let sum = 0;
  for (let n = 0; n < poly.length; n += 2) {
    const [i, j, k] = fit.data.powers[poly[n]];
    sum += poly[n + 1] * batch ** i * seq ** j * short ** k;
  }
  return sum;
};

fit.holds = (when, batch, seq) => {
  const given = { batch, seq, tokens: batch * seq };
  return Object.entries(when).every(
    ([name, [low, high]]) => given[name] >= low && (high === null || given[name] <= high));
};

// The peak is the phase whose terms sum to most, the first of equals.
fit.bill = (model, key, batch, seq) => {
  const { polys, phases } = fit.data;
  const table = model.tables[key].find(([when]) => fit.holds(when, batch, seq));
  const [when, found, base] = table;
  const names = Object.keys(fit.data.terms);
  let peak = null;
  for (const [name, ...moving] of phases[found]) {
    const terms = {};
    const formulas = {};
    let allocated = 0;
    names.forEach((term, n) => {
      const more = fit.data.moving.indexOf(term);
      const parts = [polys[base[n]], more < 0 ? [] : polys[moving[more]]];
      formulas[term] = parts;
      terms[term] = parts.reduce((a, p) => a + fit.value(p, batch, seq, model.window), 0);
      allocated += terms[term];
    });
    if (peak === null || allocated > peak.allocated) {
      peak = { phase: name, terms, formulas, allocated, when };
    }
  }
  return peak;
};

fit.speed = (s, model, card, bill) => {
  const { polys } = fit.data;
  const lines = model.reads[s.weights].filter(([least]) => s.batch >= least);
  const weights = fit.value(polys[lines[lines.length - 1][1]], s.batch, s.context, null);
  const bytes = weights + bill.terms.kv_cache;
  const launch = polys[model.launches[card.vendor]];
  return {
    bytes,
    bound_s: bytes * card.s_per_byte,
    estimate_s: bytes * card.expected_s_per_byte +
      fit.value(launch, s.batch, s.context, null),
  };
};

// s: card, free (GiB), model, mode, weights, context, batch, desktop, checkpointing
fit.evaluate = (s) => {
  const model = fit.data.models[s.model];
  const card = fit.data.cards[s.card];
  const again = s.mode !== "inference" && s.checkpointing;
  const bill = fit.bill(model, `${s.mode} ${s.weights}${again ? "+" : ""}`, s.batch, s.context);
  const usable = card ? card.usable[Number(s.desktop)] : s.free * fit.data.gib;
  const speed = card && s.mode === "inference" ? fit.speed(s, model, card, bill) : {};
  return { ...bill, usable, fits: bill.allocated <= usable, ...speed };
};

// The largest number in the limits of `name` at which it still fits, 0 where none does.
fit.most = (s, name) => {
  let [low, high] = [0, fit.data.limits[name][1]];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (fit.evaluate({ ...s, [name]: middle }).fits) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
};

// The row at the smallest product of ratios in what both sides state.
fit.nearest = (rows, wanted) => {
  const ratio = (a, b) => Math.max(a / b, b / a);
  const away = (row) => Object.entries(wanted).reduce((a, [k, v]) => a * ratio(row[k], v), 1);
  return rows.reduce((a, b) => (a && away(a) <= away(b) ? a : b), null);
};
