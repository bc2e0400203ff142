"use strict";
/* What all pages share: elements made without markup, figures, and the switch between light and dark. */
const element = (tag, name, parent, text) => {
  const node = document.createElement(tag);
  if (name) node.className = name;
  if (text !== undefined) node.textContent = text;
  if (parent) parent.append(node);
  return node;
};
/* A number at its decimals; one that is too large or too fine for them in powers of ten. */
const figure = (value, places, sign) => {
  if (value === null || value === undefined) return "–";
  const exact = Math.abs(value) < 1e9 && places <= 9, shown = exact ? Number(value.toFixed(places)) : value, size = Math.abs(shown);
  const text = exact ? size.toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places }) : size.toPrecision(4);
  return (shown < 0 ? "\u2212" : sign && shown > 0 ? "+" : "") + text;
};
(() => {
  const root = document.documentElement, button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const name = () => { if (button) button.textContent = dark() ? "Light" : "Dark"; };
  try { if (localStorage.labeldeconvTheme) root.dataset.theme = localStorage.labeldeconvTheme; } catch { /* no storage: the system decides */ }
  if (button) button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.labeldeconvTheme = root.dataset.theme; } catch { /* the choice lasts as long as the page */ }
    name();
  });
  system.addEventListener("change", name);
  name();
})();
