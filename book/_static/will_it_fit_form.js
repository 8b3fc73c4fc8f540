// "Will it fit?": the form, what is wrong in it, and the address that keeps it.
"use strict";

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
};

fit.changed = () => {
  fit.update();
  fit.toAddress(fit.read());
};

// An address without "=" is a heading's, not a choice.
fit.restore = () => {
  if (location.hash.includes("=")) {
    fit.update(fit.fill(fit.fromAddress()));
  }
};

fit.start = () => {
  fit.data = JSON.parse(document.getElementById("fit-data").textContent);
  fit.update(fit.fill(fit.data.start));
  fit.restore();
  const form = document.querySelector(".fit-form");
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", ({ target }) => target.type === "text" && fit.changed());
  form.addEventListener("change", ({ target }) => {
    if (target === at("mode")) {
      fit.formats(at("weights").value);
    }
    if (target.type !== "text") {
      fit.changed();
    }
  });
  addEventListener("hashchange", fit.restore);
  document.getElementById("fit").hidden = false;
};

addEventListener("DOMContentLoaded", fit.start);
