"use strict";
/* Tabs, theme, copying, printing, and drawing charts when they come into sight. The address keeps the tab or node. */
(() => {
  const data = JSON.parse(document.getElementById("page-data").textContent);
  const root = document.documentElement, tabs = [...document.querySelectorAll("[role=tab]")];
  const panels = tabs.map((tab) => document.getElementById(tab.getAttribute("aria-controls")));
  const figures = [...document.querySelectorAll("figure.chart")].map((box) => ({
    box, plot: box.querySelector(".plot"), select: box.querySelector("select"), specs: data.figures[box.dataset.figure], width: 0,
    title: box.querySelector("h3").textContent,
  }));
  const PRINTED = { wide: 680, half: 325 }; // pixels on an A4 page

  const draw = (figure, width) => {
    const spec = figure.specs[figure.select ? figure.select.value : 0];
    figure.width = width;
    Charts.draw(figure.plot, spec, figure.title, width);
    let kept = figure.box.querySelector("details.numbers");
    const open = kept ? kept.open : false;
    if (kept) kept.remove();
    const rows = Charts.numbers(spec);
    if (!rows.length) return;
    kept = element("details", "numbers");
    kept.open = open;
    element("summary", "", kept, "Numbers");
    const table = element("table", "", element("div", "scroll", kept));
    rows.forEach((row, i) => {
      const line = element("tr", "", table);
      row.forEach((text, k) => element(i && k ? "td" : "th", k ? "n" : "", line, text));
    });
    figure.box.append(kept);
  };
  const redraw = () => {
    for (const figure of figures) {
      const width = figure.plot.clientWidth;
      if (width && Math.abs(width - figure.width) > 1) draw(figure, width);
    }
  };
  new ResizeObserver(redraw).observe(document.getElementById("main"));

  // Charts of one group follow each other's choice where they offer the same one.
  for (const figure of figures) {
    if (!figure.select) continue;
    const chosen = element("span", "chosen", figure.box.querySelector("figcaption"));
    const follow = () => { chosen.textContent = figure.select.selectedOptions[0].textContent; if (figure.width) draw(figure, figure.width); };
    follow();
    figure.select.addEventListener("change", () => {
      const wanted = figure.select.selectedOptions[0].textContent;
      follow();
      for (const other of figures) {
        if (other === figure || !other.select) continue;
        const place = [...other.select.options].findIndex((option) => option.textContent === wanted);
        if (place >= 0 && other.select.selectedIndex !== place) { other.select.selectedIndex = place; other.select.dispatchEvent(new Event("follow")); }
      }
    });
    figure.select.addEventListener("follow", follow);
  }

  let explorer = null;
  const open = (key, focus) => {
    const place = Math.max(0, panels.findIndex((panel) => panel.id === key));
    tabs.forEach((tab, i) => {
      tab.setAttribute("aria-selected", i === place);
      tab.tabIndex = i === place ? 0 : -1;
      panels[i].hidden = i !== place;
    });
    const strip = tabs[place].parentElement;
    strip.scrollLeft = tabs[place].offsetLeft - strip.clientWidth / 2 + tabs[place].offsetWidth / 2;
    if (focus) tabs[place].focus();
    if (panels[place].id === "nodes" && explorer && explorer.shown() < 0) explorer.first();
    redraw();
  };
  if (data.explorer) explorer = Explorer.start(data.explorer, (i) => { location.hash = `node=${i}`; });
  const follow = () => {
    const hash = location.hash.slice(1);
    if (hash.startsWith("node=") && explorer) {
      explorer.show(Number(hash.slice(5)));
      open("nodes");
      if (innerWidth <= 860) document.getElementById("node").scrollIntoView();
    } else open(hash);
  };
  addEventListener("hashchange", follow);
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => {
      history.replaceState(null, "", `#${panels[i].id}`);
      open(panels[i].id);
      const top = document.querySelector("nav").offsetTop;
      if (scrollY > top) scrollTo({ top, behavior: "instant" });
    });
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const to = step ? (i + step + tabs.length) % tabs.length : { Home: 0, End: tabs.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      open(panels[to].id, true);
    });
  });

  for (const copy of document.querySelectorAll(".copy")) {
    copy.addEventListener("click", async () => {
      const code = copy.closest("figure").querySelector("code");
      try { await navigator.clipboard.writeText(code.textContent); copy.textContent = "Copied"; } catch {
        const range = document.createRange();
        range.selectNodeContents(code);
        getSelection().removeAllRanges();
        getSelection().addRange(range);
        copy.textContent = "Selected";
      }
      setTimeout(() => { copy.textContent = "Copy"; }, 1600);
    });
  }

  const print = () => {
    if (explorer && explorer.shown() < 0) explorer.first();
    for (const figure of figures) draw(figure, figure.box.classList.contains("wide") ? PRINTED.wide : PRINTED.half);
  };
  addEventListener("beforeprint", print);
  addEventListener("afterprint", redraw);
  matchMedia("print").addEventListener("change", (event) => { if (event.matches) print(); else redraw(); });
  follow();
})();
