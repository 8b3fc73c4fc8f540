// "Will it fit?": evaluates the planner's coefficients. What it knows: a sum, a maximum, a
// stated condition, and bytes times seconds per byte. Every formula comes with the data.
"use strict";

const fit = {};

// ---- evaluation ----------------------------------------------------------------------

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
      const more = fit.moving.indexOf(term);
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

// ---- words ---------------------------------------------------------------------------

const digits = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const whole = (n) => digits.format(n);
const gib = (n) => `${(n / fit.data.gib).toFixed(2)} GiB`;
const choose = (options, name) => Object.keys(options).includes(name);

const power = (name, n) => (n === 0 ? [] : [name + (n > 1 ? "²³"[n - 2] : "")]);

// "163,840·B·S + 65,536": the coefficients as they stand in the table.
fit.formula = (parts, window) => {
  const sums = new Map();
  for (const poly of parts) {
    for (let n = 0; n < poly.length; n += 2) {
      sums.set(poly[n], (sums.get(poly[n]) || 0) + poly[n + 1]);
    }
  }
  const order = [...sums].map(([p, c]) => [fit.data.powers[p], c]);
  order.sort(([a], [b]) => b[1] + b[2] - a[1] - a[2] || b[0] - a[0]);
  const words = order.map(([[i, j, k], c]) => [
    whole(c), ...power("B", i), ...power("S", j), ...power(`min(S, ${window})`, k),
  ].join(" · "));
  return words.join(" + ") || "0";
};

fit.condition = (when) => Object.entries(when).map(([name, [low, high]]) => {
  const letter = { batch: "B", seq: "S", tokens: "B · S" }[name];
  if (low === high) {
    return `${letter} = ${low}`;
  }
  return high === null ? `${letter} ≥ ${low}` : `${letter} ≤ ${high}`;
}).join(", ");

// ---- the form ------------------------------------------------------------------------

const at = (name) => document.getElementById(`fit-${name}`);

// An error names the value: [field, message].
fit.check = (given) => {
  const { cards, models, modes, limits } = fit.data;
  const found = [];
  const known = { card: { ...cards, free: 0 }, model: models, mode: modes };
  for (const [name, options] of Object.entries(known)) {
    if (!choose(options, given[name])) {
      found.push([name, `no ${name} “${given[name]}” in the list`]);
    }
  }
  if (choose(modes, given.mode) && !choose(modes[given.mode], given.weights)) {
    found.push(["weights", `no format “${given.weights}” for ${given.mode}`]);
  }
  for (const [name, [low, high]] of Object.entries(limits)) {
    const number = Number(given[name]);
    if (!/^\d+$/.test(given[name]) || number < low || number > high) {
      const range = `from ${whole(low)} to ${whole(high)}`;
      found.push([name, `${name} must be a whole number ${range}, got “${given[name]}”`]);
    }
  }
  if (given.card === "free" && !(/^\d*\.?\d+$/.test(given.free) && given.free > 0)) {
    found.push(["free", `free memory must be a number of GiB above 0, got “${given.free}”`]);
  }
  return found;
};

fit.read = () => {
  const given = {};
  for (const name of Object.keys(fit.data.start)) {
    given[name] = at(name).type === "checkbox" ? at(name).checked : at(name).value.trim();
  }
  return given;
};

fit.typed = (given) => ({
  ...given,
  context: Number(given.context),
  batch: Number(given.batch),
  free: Number(given.free),
});

// Shows `given` in the form; what a list does not have stays out and is returned.
fit.fill = (given) => {
  const bad = [];
  for (const name of ["card", "model", "mode"]) {
    at(name).value = given[name];
    if (at(name).selectedIndex < 0) {
      bad.push([name, `no ${name} “${given[name]}” in the list`]);
      at(name).value = fit.data.start[name];
    }
  }
  if (!fit.formats(given.weights)) {
    bad.push(["weights", `no format “${given.weights}” for ${at("mode").value}`]);
  }
  for (const name of ["free", "context", "batch"]) {
    at(name).value = given[name];
  }
  for (const name of ["desktop", "checkpointing"]) {
    at(name).checked = given[name];
  }
  return bad;
};

// The formats of the mode; false where `wanted` is not among them.
fit.formats = (wanted) => {
  const formats = fit.data.modes[at("mode").value];
  const options = Object.entries(formats).map(([name, [label]]) => new Option(label, name));
  at("weights").replaceChildren(...options);
  const has = choose(formats, wanted);
  at("weights").value = has ? wanted : Object.keys(formats)[0];
  return has;
};

// ---- address -------------------------------------------------------------------------

fit.fromAddress = () => {
  const given = { ...fit.data.start };
  for (const [name, text] of new URLSearchParams(location.hash.slice(1))) {
    if (name in given) {
      given[name] = typeof given[name] === "boolean" ? text === "1" : text;
    }
  }
  return given;
};

fit.toAddress = (given) => {
  const used = Object.entries(given).filter(([name]) =>
    (name !== "free" || given.card === "free") &&
    (name !== "desktop" || given.card !== "free") &&
    (name !== "checkpointing" || given.mode !== "inference"));
  const words = new URLSearchParams(used.map(([n, v]) => [n, v === true ? 1 : v || 0]));
  history.replaceState(null, "", `#${words}`);
};

// ---- showing -------------------------------------------------------------------------

const element = (tag, words, name) => {
  const made = document.createElement(tag);
  made.append(...[words].flat());
  if (name) {
    made.className = name;
  }
  return made;
};

fit.showErrors = (errors) => {
  for (const name of ["free", "context", "batch"]) {
    const [, words] = errors.find(([field]) => field === name) || [null, ""];
    at(`${name}-error`).textContent = words;
    at(name).setAttribute("aria-invalid", String(words !== ""));
  }
  at("verdict").className = "fit-wrong";
  at("verdict").textContent = `No answer: ${errors.map(([, words]) => words).join("; ")}.`;
};

fit.showVerdict = (s, found) => {
  const left = found.usable - found.allocated;
  const where = s.card === "free" ? "free" :
    `usable ${s.desktop ? "beside a desktop" : "without a display"}`;
  const spare = found.fits ? `${gib(left)} to spare` : `${gib(-left)} too much`;
  const words = [`It takes ${gib(found.allocated)}, and ${gib(found.usable)} is ${where}: ${spare}.`];
  const { longest } = fit.data.models[s.model];
  if (longest && s.context > longest) {
    words.push(`${s.model} was made for at most ${whole(longest)} tokens: ` +
      `a context of ${whole(s.context)} is beyond its positions.`);
  }
  at("verdict").className = found.fits ? "fit-yes" : "fit-no";
  at("verdict").replaceChildren(
    element("strong", found.fits ? "Fits." : "Does not fit."), " ", words.join(" "));
};

fit.showBar = (found) => {
  const full = Math.max(found.allocated, found.usable);
  const parts = Object.entries(found.terms).map(([term, bytes], n) => {
    const part = element("span", "", `fit-part fit-term-${n}`);
    part.style.width = `${100 * bytes / full}%`;
    part.title = `${fit.data.terms[term]}: ${gib(bytes)}`;
    return part;
  });
  const limit = element("span", "", "fit-limit");
  limit.style.left = `${100 * found.usable / full}%`;
  at("bar").replaceChildren(...parts, limit);
  const words = Object.entries(found.terms).filter(([, b]) => b > 0)
    .map(([term, b]) => `${fit.data.terms[term]} ${gib(b)}`);
  at("bar").setAttribute("aria-label", `Stacked bar: ${words.join(", ")}; ` +
    `the line at ${gib(found.usable)} is what can be used`);
};

fit.showBill = (found, window) => {
  const order = Object.keys(found.terms);
  const there = order.filter((term) => found.terms[term] > 0);
  const lines = there.map((term) => element("li", [
    element("span", "", `fit-swatch fit-term-${order.indexOf(term)}`),
    element("span", fit.data.terms[term], "fit-name"),
    element("span", gib(found.terms[term]), "fit-gib"),
    element("span", `${whole(found.terms[term])} bytes`, "fit-bytes"),
    element("span", ["= ", fit.formula(found.formulas[term], window)], "fit-formula"),
  ]));
  const none = order.filter((term) => !there.includes(term)).map((t) => fit.data.terms[t]);
  at("bill").replaceChildren(...lines);
  at("none").textContent = none.length ? `Nothing at that moment: ${none.join(", ")}.` : "";
};

fit.showMore = (s, found) => {
  const made = [
    ["Allocated at the peak", `${whole(found.allocated)} bytes, ${gib(found.allocated)}, ` +
      `in the phase “${found.phase}”${fit.condition(found.when) &&
        `; these coefficients hold for ${fit.condition(found.when)}`}`],
    ["With the CUDA context", `${gib(found.allocated + fit.data.context_bytes)} is the least ` +
      "that the driver shows. What torch's pool holds beyond is not counted here"],
  ];
  const most = fit.most(s, "context");
  made.push(["Longest context that fits", most ? `${whole(most)} tokens at this batch` :
    "none: the model does not fit at all"]);
  if (found.bound_s) {
    const rate = (seconds) =>
      `${(1e3 * seconds).toPrecision(3)} ms a step, ${(s.batch / seconds).toPrecision(3)} tokens/s`;
    made.push(
      ["Writing, at best", `${rate(found.bound_s)}: ${whole(found.bytes)} bytes at ` +
        `${whole(fit.data.cards[s.card].bytes_per_s / 1e9)} GB/s`],
      ["Writing, to be expected", `${rate(found.estimate_s)}, with llama.cpp of today`]);
  } else if (s.mode === "inference") {
    made.push(["Writing", "pick a card for its speed: free memory has no bandwidth"]);
  }
  at("more").replaceChildren(...[...made, ...fit.published(s, found)].flatMap(
    ([name, words]) => [element("dt", name), element("dd", words)]));
};

// The nearest rows of others, and how far the planner is off there.
fit.published = (s, found) => {
  const { published, models, modes, cards } = fit.data;
  const wanted = {
    params: models[s.model].params, bits: modes[s.mode][s.weights][1],
    tokens: s.batch * s.context,
  };
  const memory = published.memory.filter((row) => row.mode === s.mode);
  const row = fit.nearest(memory, wanted);
  const made = [["Nearest published peak", fit.told(row, "GiB", ` ${row.level}`)]];
  if (found.bound_s) {
    const card = cards[s.card];
    const same = published.speed.filter((r) => r.vendor === card.vendor);
    const wide = { bytes: found.bytes, bytes_per_s: card.bytes_per_s };
    const speed = fit.nearest(same.length ? same : published.speed, wide);
    const other = same.length ? "" : `, no ${card.vendor} card`;
    made.push([`Nearest published speed${other}`, fit.told(speed, "tokens/s", "")]);
  }
  return made;
};

fit.told = (row, unit, level) => {
  const off = 100 * (row.predicted / row.measured - 1);
  const link = element("a", row.words);
  link.href = row.source;
  return [link, `: measured ${row.measured} ${unit}${level}, the planner says ` +
    `${row.predicted}, ${Math.abs(off).toFixed(1)} % too ${off < 0 ? "low" : "high"}`];
};

fit.update = (early = []) => {
  const given = fit.read();
  at("free").parentElement.hidden = given.card !== "free";
  at("desktop").parentElement.hidden = given.card === "free";
  at("checkpointing").parentElement.hidden = given.mode === "inference";
  const errors = [...early, ...fit.check(given)];
  at("answer").hidden = errors.length > 0;
  if (errors.length) {
    fit.showErrors(errors);
    return;
  }
  const s = fit.typed(given);
  const found = fit.evaluate(s);
  fit.showErrors([]);
  fit.showVerdict(s, found);
  fit.showBar(found);
  fit.showBill(found, fit.data.models[s.model].window);
  fit.showMore(s, found);
  fit.toAddress(given);
};

fit.start = () => {
  fit.data = JSON.parse(document.getElementById("fit-data").textContent);
  fit.moving = fit.data.moving;
  const restore = () => fit.update(fit.fill(fit.fromAddress()));
  restore();
  const form = document.querySelector(".fit-form");
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", (event) => event.target.type === "text" && fit.update());
  form.addEventListener("change", ({ target }) => {
    if (target === at("mode")) {
      fit.formats(at("weights").value);
    }
    if (target.type !== "text") {
      fit.update();
    }
  });
  addEventListener("hashchange", restore);
  document.getElementById("fit").hidden = false;
};

window.willItFit = fit;
addEventListener("DOMContentLoaded", fit.start);
