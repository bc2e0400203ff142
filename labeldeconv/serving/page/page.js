"use strict";
/* A text and its neighbors to a prediction. All that comes from the server is written through textContent. */
(() => {
  const $ = (id) => document.getElementById(id);
  const SHOWN = 10, LEFT_OUT = 12, TARGETS = 4; // classes in the table; neighbors that are left out in turn; targets explained
  let run = null, chosen = [], hits = [], at = -1, asked = 0, waiting = 0;

  const numeric = () => run.task === "regression"; // labels are numbers: no classes, no probabilities
  const counted = (n, what) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : what.endsWith("s") ? "es" : "s"}`;
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
    for (const fact of [run.method, run.gnn, `${run.nodes.toLocaleString("en")} nodes`, counted(run.class_names.length, numeric() ? "target" : "class")]) element("span", "", $("meta"), fact);
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
  // Numbers, in the unit of the labels: a hundredth of the train nodes' standard deviation can be seen.
  const number = (value, k, sign) => figure(value, Math.max(0, 2 - Math.floor(Math.log10(run.targets.std[k]))), sign);
  const values = (node) => [node.prediction].flat();
  const said = (node) => {
    if (!numeric()) return Array.isArray(node.prediction) ? node.prediction.join(", ") || "no label" : node.prediction;
    const told = values(node).slice(0, TARGETS).map((value, k) => `${run.class_names[k]} ${number(value, k)}`);
    return told.join(", ") + (run.class_names.length > TARGETS ? ", …" : "");
  };

  const table = (box, name, heads) => {
    const made = element("table", name, element("div", "scroll", box)), row = element("tr", "", element("thead", "", made));
    for (const [text, kind] of heads) element("th", kind, row, text);
    return element("tbody", "", made);
  };
  const signed = (value) => `${value > 0 ? "+" : ""}${value.toFixed(2)}`;
  const drawHops = (box, whys) => {
    const [why] = whys, added = (value, k) => (numeric() ? number(value, k, true) : signed(value));
    element("h4", "", box, numeric() ? "What each hop adds" : `What each hop adds to “${why.of}”`);
    const body = table(box, "hops", [["hop", ""], ...whys.map((one) => [numeric() ? one.of : "logit", "n"])]);
    const far = why.hops_are === "distances" ? "edges away" : "steps of A-hat";
    const line = (name, value) => {
      const row = element("tr", "", body);
      element("th", "", row, name);
      whys.forEach((one, k) => element("td", "n", row, added(value(one), k)));
    };
    why.by_hop.forEach((_, i) => line(i === 0 ? "0: its own text" : `${i} ${far}`, (one) => one.by_hop[i]));
    if (why.of_labels !== null) line("known labels around it", (one) => one.of_labels);
    const told = (value, k) => (numeric() ? number(value, k) : signed(value));
    const ways = whys.map((one, k) => `${numeric() ? `${one.of} ` : ""}from ${told(one.baseline, k)}${k ? "" : " at the mean features of the graph"} to ${told(one.logit, k)}`);
    element("p", "note", box, `${why.how}: ${ways.join(", ")}.`);
  };

  const draw = (linked, alone, without, whys) => {
    const box = $("node"), first = linked || alone, numbers = numeric();
    box.replaceChildren();
    element("h3", "", box, said(first));
    const meta = element("p", "meta", box);
    if (first.probability !== null) element("span", "", meta, percent(first.probability));
    element("span", "", meta, `by ${first.by}`);
    element("span", "", meta, linked ? counted(chosen.length, "neighbor") : "no neighbors");
    element("h4", "", box, numbers ? "Numbers" : "Probabilities");
    const order = numbers ? run.class_names.map((_, k) => k).slice(0, SHOWN) : first.probabilities.map((p, k) => [p, k]).sort((a, b) => b[0] - a[0]).slice(0, SHOWN).map(([, k]) => k);
    const columns = linked ? [["with neighbors", linked, 0], ["on its own", alone, 3]] : [["on its own", alone, 3]];
    const heads = columns.map(([name, node]) => [`${name} (${node.by})`, numbers ? "n" : ""]);
    const body = table(box, numbers ? "numbers" : "", [[numbers ? "target" : "class", ""], ...heads, ...(numbers ? [["train nodes", "n"]] : [])]);
    for (const k of order) {
      const row = element("tr", "", body);
      element("th", said(first) === run.class_names[k] ? "best" : "", row, run.class_names[k]);
      for (const [, node, color] of columns) {
        if (numbers) element("td", "n", row, number(values(node)[k], k));
        else meter(element("td", "metered", row), node.probabilities[k], color);
      }
      if (numbers) element("td", "n", row, `${number(run.targets.mean[k], k)} ± ${number(run.targets.std[k], k)}`);
    }
    if (numbers) element("p", "note", box, "All in the unit of the labels; train nodes have that mean, ± their standard deviation.");
    if (run.class_names.length > SHOWN) element("p", "note", box, numbers ? `The first ${SHOWN} of ${run.class_names.length} targets.` : `The ${SHOWN} most probable of ${run.class_names.length} classes.`);
    if (linked) element("p", "note", box, `Without its neighbors it would be: ${said(alone)}.`);
    if (whys) drawHops(box, whys);
    if (!without.length) return;
    const tops = order.slice(0, numbers ? TARGETS : 1);
    element("h4", "", box, numbers ? "What each neighbor adds" : `What each neighbor adds to “${run.class_names[tops[0]]}”`);
    const rows = table(box, "each", [["neighbor", ""], ["text", ""], ...tops.map((k) => [numbers ? run.class_names[k] : "points", "n"])]);
    without.forEach((node, i) => {
      const row = element("tr", "", rows);
      element("th", "", row, chosen[i].id);
      element("td", "", row, chosen[i].text);
      for (const k of tops) {
        const gained = numbers ? values(linked)[k] - values(node)[k] : 100 * (linked.probabilities[k] - node.probabilities[k]);
        element("td", "n", row, numbers ? number(gained, k, true) : `${gained > 0 ? "+" : ""}${gained.toFixed(1)}`);
      }
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
      const targets = numeric() ? run.class_names.slice(0, TARGETS) : [undefined];
      const why = (of) => ask("explain", { nodes: [{ ...own, neighbors: ids }], of, top: 0 });
      draw(linked, alone, without, ids.length ? await Promise.all(targets.map(why)).catch(() => null) : null);
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
