// "Will it fit?": the answer in words, a bar and a bill.
"use strict";

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
    ["With the driver's context", `${gib(found.allocated + fit.data.context_bytes)} is the least ` +
      "that the driver shows. What torch's pool holds beyond is not counted here"],
  ];
  made.push(["Longest context that fits", fit.longest(s)]);
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

fit.longest = (s) => {
  const most = fit.most(s, "context");
  if (!most) {
    return "none: it does not fit at any length";
  }
  const { longest } = fit.data.models[s.model];
  const all = most === fit.data.limits.context[1] ? " or more" : "";
  const own = longest && most > longest ? `; ${s.model} was made for ${whole(longest)}` : "";
  return `${whole(most)} tokens${all} at this batch${own}`;
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
