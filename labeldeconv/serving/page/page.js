"use strict";
/* A text and its neighbors to a prediction. All that comes from the server is written through textContent. */
(() => {
  const $ = (id) => document.getElementById(id);
  const SHOWN = 10, LEFT_OUT = 12; // classes in the table; neighbors that are left out in turn
  let run = null, chosen = [], hits = [], at = -1, asked = 0, waiting = 0;

  const percent = (p) => `${(100 * p).toFixed(1)}%`;
  const token = () => { try { return sessionStorage.labeldeconvToken || ""; } catch { return $("token").value; } };

  const ask = async (path, body) => {
    const headers = token() ? { Authorization: `Bearer ${token()}` } : {};
    if (body) headers["Content-Type"] = "application/json";
    const answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body ? JSON.stringify(body) : undefined });
    const told = await answer.json();
    if (answer.ok) return told;
    if (answer.status === 401) { $("locked").hidden = false; $("asking").hidden = true; }
    throw new Error(told.errors.map((e) => (e.field ? `${e.field}: ${e.message}` : e.message)).join("; "));
  };

  const start = async () => {
    try { run = await ask("run"); } catch (error) { if ($("locked").hidden) $("wrong").textContent = error.message; return; }
    $("locked").hidden = true;
    $("asking").hidden = false;
    $("name").textContent = run.data;
    $("meta").replaceChildren();
    for (const fact of [run.method, run.gnn, `${run.nodes.toLocaleString("en")} nodes`, `${run.class_names.length} classes`]) element("span", "", $("meta"), fact);
    const fields = $("attributes");
    fields.replaceChildren();
    for (const name of run.columns || [run.features ? `${run.features} numbers, separated by commas` : run.attributes === "sequence" ? "Sequence" : "Text"]) {
      const label = element("label", "", fields, name);
      const box = element(run.columns ? "input" : "textarea", "attribute", label);
      box.maxLength = run.limits.text;
      box.spellcheck = false;
    }
    if (run.edge_features) {
      $("search").disabled = true;
      $("count").textContent = "This GNN reads features of edges: neighbors are given by programs alone.";
    }
  };

  const attributes = () => {
    const values = [...document.querySelectorAll(".attribute")].map((box) => box.value);
    if (run.columns) return { text: Object.fromEntries(run.columns.map((name, i) => [name, values[i]])) };
    if (run.features) return { features: values[0].split(",").map(Number) };
    return { text: values[0] };
  };

  // Search: a list under the field, by mouse or arrow keys.
  const closeHits = () => { hits = []; at = -1; $("hits").hidden = true; $("hits").replaceChildren(); $("search").setAttribute("aria-expanded", "false"); };
  const mark = (i) => {
    at = i;
    [...$("hits").children].forEach((item, k) => { item.setAttribute("aria-selected", k === i); if (k === i) item.scrollIntoView({ block: "nearest" }); });
  };
  const choose = (node) => {
    if (!chosen.some((other) => other.id === node.id)) chosen.push(node);
    $("search").value = "";
    $("count").textContent = "";
    closeHits();
    drawChosen();
  };
  const drawChosen = () => {
    $("chosen").replaceChildren();
    for (const node of chosen) {
      const item = element("li", "", $("chosen"));
      element("b", "", item, node.id);
      element("span", "", item, node.text);
      const away = element("button", "", item, "×");
      away.type = "button";
      away.setAttribute("aria-label", `Remove ${node.id}`);
      away.addEventListener("click", () => { chosen = chosen.filter((other) => other !== node); drawChosen(); });
    }
  };
  const search = async () => {
    const query = $("search").value.trim(), own = ++asked;
    if (!query) { $("count").textContent = ""; return closeHits(); }
    try {
      const found = await ask(`nodes?limit=20&q=${encodeURIComponent(query.slice(0, 200))}`);
      if (own !== asked) return;
      hits = found.nodes;
      $("count").textContent = hits.length ? "" : found.complete ? "no node found" : "no node found in the first texts";
      $("hits").replaceChildren();
      hits.forEach((node) => {
        const item = element("li", "", $("hits"));
        item.setAttribute("role", "option");
        element("b", "", item, node.id);
        element("span", "", item, node.text);
        item.addEventListener("click", () => choose(node));
      });
      $("hits").hidden = !hits.length;
      $("search").setAttribute("aria-expanded", String(hits.length > 0));
      mark(hits.length ? 0 : -1);
    } catch (error) { $("count").textContent = error.message; }
  };
  $("search").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(search, 150); });
  $("search").addEventListener("keydown", (event) => {
    if (event.key === "Enter") { event.preventDefault(); if (at >= 0) choose(hits[at]); }
    else if (event.key === "Escape") closeHits();
    else if (hits.length && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      mark((at + (event.key === "ArrowDown" ? 1 : -1) + hits.length) % hits.length);
    }
  });

  const meter = (cell, value, color) => {
    const box = element("div", `meter k${color}`, cell), bar = element("progress", "", box);
    bar.max = 1;
    bar.value = value;
    element("span", "", box, percent(value));
  };
  const figure = (value) => String(Number(value.toPrecision(5)));
  const values = (node) => [node.prediction].flat();
  const said = (node) => (run.task === "regression" ? values(node).map(figure).join(", ")
    : Array.isArray(node.prediction) ? node.prediction.join(", ") || "no label" : node.prediction);

  const signed = (value) => `${value > 0 ? "+" : ""}${value.toFixed(2)}`;
  const drawHops = (box, why) => {
    element("h4", "", box, `What each hop adds to “${why.of}”`);
    const table = element("table", "hops", element("div", "scroll", box)), head = element("tr", "", element("thead", "", table));
    element("th", "", head, "hop");
    element("th", "n", head, run.task === "regression" ? "number" : "logit");
    const body = element("tbody", "", table), far = why.hops_are === "distances" ? "edges away" : "steps of A-hat";
    why.by_hop.forEach((value, i) => {
      const row = element("tr", "", body);
      element("th", "", row, i === 0 ? "0: its own text" : `${i} ${far}`);
      element("td", "n", row, signed(value));
    });
    if (why.of_labels !== null) {
      const row = element("tr", "", body);
      element("th", "", row, "known labels around it");
      element("td", "n", row, signed(why.of_labels));
    }
    element("p", "note", box, `${why.how}: from ${signed(why.baseline)} at the mean features of the graph to ${signed(why.logit)}.`);
  };

  const draw = (linked, alone, without, why) => {
    const box = $("node"), first = linked || alone;
    box.replaceChildren();
    element("h3", "", box, said(first));
    const meta = element("p", "meta", box);
    if (first.probability !== null) element("span", "", meta, percent(first.probability));
    element("span", "", meta, `by ${first.by}`);
    element("span", "", meta, linked ? `${chosen.length} neighbor${chosen.length > 1 ? "s" : ""}` : "no neighbors");
    const numbers = run.task === "regression";
    element("h4", "", box, numbers ? "Numbers" : "Probabilities");
    const order = numbers ? run.class_names.map((_, k) => k).slice(0, SHOWN) : first.probabilities.map((p, k) => [p, k]).sort((a, b) => b[0] - a[0]).slice(0, SHOWN).map(([, k]) => k);
    const columns = linked ? [["with neighbors", linked, 0], ["on its own", alone, 3]] : [["on its own", alone, 3]];
    const table = element("table", "", element("div", "scroll", box)), head = element("tr", "", element("thead", "", table));
    element("th", "", head, numbers ? "target" : "class");
    for (const [name, node] of columns) element("th", "", head, `${name} (${node.by})`);
    const body = element("tbody", "", table);
    for (const k of order) {
      const row = element("tr", "", body);
      element("th", said(first) === run.class_names[k] ? "best" : "", row, run.class_names[k]);
      for (const [, node, color] of columns) {
        if (numbers) element("td", "n", row, figure(values(node)[k]));
        else meter(element("td", "metered", row), node.probabilities[k], color);
      }
    }
    if (run.class_names.length > SHOWN) element("p", "note", box, numbers ? `The first ${SHOWN} of ${run.class_names.length} targets.` : `The ${SHOWN} most probable of ${run.class_names.length} classes.`);
    if (linked) element("p", "note", box, `Without its neighbors it would be: ${said(alone)}.`);
    if (why) drawHops(box, why);
    if (!without.length) return;
    const top = order[0];
    element("h4", "", box, `What each neighbor adds to “${run.class_names[top]}”`);
    const each = element("table", "", element("div", "scroll", box)), names = element("tr", "", element("thead", "", each));
    for (const name of ["neighbor", "text"]) element("th", "", names, name);
    element("th", "n", names, numbers ? "difference" : "points");
    const rows = element("tbody", "", each);
    without.forEach((node, i) => {
      const row = element("tr", "", rows), gained = numbers ? values(linked)[top] - values(node)[top] : 100 * (linked.probabilities[top] - node.probabilities[top]);
      element("th", "", row, chosen[i].id);
      element("td", "", row, chosen[i].text);
      element("td", "n", row, `${gained > 0 ? "+" : ""}${numbers ? figure(gained) : gained.toFixed(1)}`);
    });
    element("p", "note", box, "Each row is a prediction without that neighbor, held against the one with all of them; the rows do not add up to the difference that all neighbors make.");
  };

  $("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    $("wrong").textContent = "";
    $("predict").disabled = true;
    const own = attributes(), ids = chosen.map((node) => node.id);
    const one = async (neighbors) => (await ask("predict", { nodes: [{ ...own, neighbors }] })).nodes[0];
    try {
      const some = ids.length > 1 && ids.length <= LEFT_OUT ? ids : [];
      const [alone, linked, ...without] = await Promise.all([
        one([]), ids.length ? one(ids) : null, ...some.map((out) => one(ids.filter((id) => id !== out))),
      ]);
      // What a model cannot explain, such as one that reads labels, it still predicts.
      const why = ids.length ? await ask("explain", { nodes: [{ ...own, neighbors: ids }], top: 0 }).catch(() => null) : null;
      draw(linked, alone, without, why);
      if (innerWidth <= 860) $("node").scrollIntoView();
    } catch (error) { $("wrong").textContent = error.message; }
    $("predict").disabled = false;
  });

  $("locked").addEventListener("submit", (event) => {
    event.preventDefault();
    try { sessionStorage.labeldeconvToken = $("token").value; } catch { /* the field itself keeps it */ }
    start();
  });

  start();
})();
