"use strict";
/* What all pages share: elements made without markup, and the switch between light and dark. */
const element = (tag, name, parent, text) => {
  const node = document.createElement(tag);
  if (name) node.className = name;
  if (text !== undefined) node.textContent = text;
  if (parent) parent.append(node);
  return node;
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
