// What the theme and MathJax leave without a name or out of the keyboard's reach.
"use strict";

function nameFolds() {
  for (const fold of document.querySelectorAll(".bd-links summary")) {
    fold.setAttribute("aria-label", "Pages of this chapter");
  }
}

function reachFormulas() {
  for (const formula of document.querySelectorAll("mjx-container[display]")) {
    if (formula.scrollWidth > formula.clientWidth) {
      formula.tabIndex = 0;
    } else {
      formula.removeAttribute("tabindex");
    }
  }
}

addEventListener("DOMContentLoaded", nameFolds);
addEventListener("load", () => {
  if (window.MathJax?.startup) {
    MathJax.startup.promise.then(reachFormulas);
  }
});
addEventListener("resize", reachFormulas);
