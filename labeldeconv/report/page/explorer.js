"use strict";
/* The node explorer: search by id or words, filter by who is right or sort by errors, show one node. Texts become text
   nodes only. */
const Explorer = (() => {
  const MOST = 60; // hits listed
  const ROLES = { "-1": "no split", 0: "train", 1: "validation", 2: "test" };

  const table = (parent, heads) => {
    const box = element("div", "scroll", parent), made = element("table", "", box), row = element("tr", "", element("thead", "", made));
    heads.forEach((head) => { element("th", "", row, head).scope = "col"; });
    return element("tbody", "", made);
  };

  const start = (data, open) => {
    const nodes = data.nodes, input = document.getElementById("search"), filter = document.getElementById("filter");
    const list = document.getElementById("hits"), count = document.getElementById("count"), view = document.getElementById("node");
    const words = nodes.map((node) => `${node.id}\n${node.t}`.toLowerCase());
    const numbers = data.task === "regression" ? Numbers(data, table) : null;
    const one = data.task === "multiclass", name = (k) => (k === null || k === undefined ? "–" : data.classes[k]);
    const labels = (y) => (numbers ? numbers.all(y) : y === null ? "unlabelled" : one ? name(y) : y.length ? y.map(name).join(", ") : "no positive label");
    const isRight = (node, k) => one && node.y !== null && node.p[k] && node.p[k][0] === node.y;
    let current = -1, at = -1, found = [];

    const filters = [["All nodes", () => true], ["Test nodes", (n) => n.r === 2]];
    if (one && data.entries.length) {
      const r = data.reference, called = data.entries[r].name;
      filters.push([`${called} wrong`, (n) => n.y !== null && n.r !== 0 && !isRight(n, r)]);
      if (data.entries.length > 1) {
        filters.push([`Only ${called} right`, (n) => n.r !== 0 && isRight(n, r) && data.entries.every((_, k) => k === r || !isRight(n, k))]);
        filters.push([`Only ${called} wrong`, (n) => n.y !== null && n.r !== 0 && data.entries.every((_, k) => isRight(n, k) === (k !== r))]);
        filters.push(["All wrong", (n) => n.y !== null && n.r !== 0 && data.entries.every((_, k) => !isRight(n, k))]);
      }
    }
    if (numbers && data.entries.length) filters.push(...numbers.filters());
    filters.forEach(([text], i) => { element("option", "", filter, text).value = i; });

    const search = () => {
      const asked = input.value.trim().toLowerCase(), parts = asked.split(/\s+/).filter(Boolean);
      const [, keep, size] = filters[filter.value || 0];
      found = [];
      nodes.forEach((node, i) => { if (keep(node) && parts.every((word) => words[i].includes(word))) found.push(i); });
      if (size) found.sort((a, b) => size(nodes[b]) - size(nodes[a])); // sorting is stable: ties stay in order
      if (asked) {
        const rank = (i) => { const id = nodes[i].id.toLowerCase(); return id === asked ? 0 : id.startsWith(asked) ? 1 : 2; };
        found.sort((a, b) => rank(a) - rank(b));
      }
      at = -1;
      list.replaceChildren();
      found.slice(0, MOST).forEach((i) => {
        const item = element("li", "", list);
        item.setAttribute("role", "option");
        item.id = `hit-${i}`;
        item.setAttribute("aria-selected", i === current);
        element("b", "", item, nodes[i].id);
        element("span", "", item, nodes[i].t.slice(0, 90) || "(no text)");
        if (size) element("em", "", item, numbers.size(size(nodes[i])));
        item.addEventListener("click", () => open(i));
      });
      const all = found.length.toLocaleString("en-US");
      count.textContent = found.length > MOST ? `${all} nodes found, the first ${MOST} listed` : found.length === 1 ? "1 node found" : `${all} nodes found`;
      input.setAttribute("aria-expanded", found.length > 0);
      input.removeAttribute("aria-activedescendant");
    };
    const move = (step) => {
      const items = list.children;
      if (!items.length) return;
      if (items[at]) items[at].classList.remove("at");
      at = (at + step + items.length) % items.length;
      items[at].classList.add("at");
      items[at].scrollIntoView({ block: "nearest" });
      input.setAttribute("aria-activedescendant", items[at].id);
    };
    input.addEventListener("input", search);
    filter.addEventListener("change", search);
    input.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); move(event.key === "ArrowDown" ? 1 : -1); }
      if (event.key === "Enter" && found.length) { event.preventDefault(); open(found[Math.max(at, 0)]); }
      if (event.key === "Escape") { input.value = ""; search(); }
    });

    const meter = (parent, value, color) => {
      const box = element("div", "meter", parent);
      const bar = element("b", `k${color}`, element("i", "", box));
      bar.style.width = `${value ?? 0}%`;
      element("span", "", box, value === null ? "–" : String(value));
    };

    const bars = (node) => {
      const [classes, values] = node.b;
      if (!classes.length) return;
      element("h4", "", view, "Labels by hop (%)");
      const body = table(view, ["class", ...data.slices]);
      classes.forEach((k, i) => {
        const row = element("tr", "", body);
        element("th", "", row, name(k)).scope = "row";
        values[i].forEach((value, s) => meter(element("td", "metered", row), value, data.slices[s] === "inverse" ? 0 : data.slices[s] === "true" ? 8 : 9));
      });
      const told = data.slices.length > 1 ? `K0 holds true labels on train nodes and pseudo labels elsewhere; Ki averages K0 over the nodes i hops away; from ${data.origin}.` : "";
      if (told) element("p", "note", view, told);
    };
    const predictions = (node) => {
      if (!data.entries.length) return;
      const several = data.entries.some((entry) => entry.seeds > 1);
      element("h4", "", view, "Predictions");
      const body = table(view, one ? ["method", "predicted", "probability (%)", "", ...(several ? ["seeds right"] : [])] : ["method", "first labels with probability (%)", "true labels found"]);
      data.entries.forEach((entry, k) => {
        const row = element("tr", "", body), head = element("th", "", row), p = node.p[k];
        head.scope = "row";
        element("i", `key k${entry.color}`, head);
        head.append(entry.name);
        if (one) {
          element("td", "", row, name(p[0]));
          meter(element("td", "metered", row), p[1], entry.color);
          element("td", node.y === null ? "" : p[0] === node.y ? "right" : "wrong", row, node.y === null ? "" : p[0] === node.y ? "right" : "wrong");
          if (several) element("td", "", row, node.y === null ? "–" : `${p[2]} of ${entry.seeds}`);
        } else {
          const cell = element("td", "", row);
          p.forEach(([label, value], i) => {
            if (i) cell.append(", ");
            element("span", node.y && node.y.includes(label) ? "right" : "", cell, `${name(label)} ${value}`);
          });
          const hits = p.filter(([label]) => node.y && node.y.includes(label)).length;
          element("td", "", row, node.y === null ? "–" : `${hits} of ${Math.min(node.y.length, p.length)}`);
        }
      });
    };
    const signed = (value) => (numbers ? numbers.say(value, 0, true) : value > 0 ? `+${value.toFixed(2)}` : value.toFixed(2).replace("-", "\u2212"));
    const reasons = (node) => {
      if (!node.e) return;
      const [k, logit, baseline, hops, near, [others, rest], ofLabels, [own, how, counted]] = node.e;
      element("h4", "", view, `What carried ${name(k)}: ${signed(logit - baseline)} over a node of mean features`);
      const what = numbers ? name(k) : "logit";
      const byHop = table(view, ["", ...hops.map((_, i) => `hop ${i}`), ...(ofLabels === null ? [] : ["labels"])]);
      const line = element("tr", "", byHop);
      element("th", "", line, what).scope = "row";
      [...hops, ...(ofLabels === null ? [] : [ofLabels])].forEach((value) => element("td", "", line, signed(value)));
      const byNode = table(view, ["node", "hops away", what]);
      [[node.id, 0, own], ...near, ...(others ? [[`${others.toLocaleString("en-US")} others`, "", rest]] : [])].forEach(([id, away, value]) => {
        const row = element("tr", "", byNode);
        element("th", "", row, id).scope = "row";
        element("td", "", row, String(away));
        element("td", "", row, signed(value));
      });
      element("p", "note", view, `${data.entries[data.reference].name}; ${how}; hops are ${counted}.`);
    };
    const neighbours = (node) => {
      const shown = node.n.length + node.o.length;
      element("h4", "", view, node.d === 0 ? "No neighbours" : shown < node.d ? `${shown} of ${node.d.toLocaleString("en-US")} neighbours` : node.d === 1 ? "1 neighbour" : `${node.d} neighbours`);
      const near = element("ul", numbers ? "near figures" : "near", view);
      const line = (parent, id, y, text) => {
        element("b", "", parent, id);
        element("em", one && y !== null && y === node.y ? "same" : "", parent, labels(y));
        element("span", "", parent, text);
      };
      node.n.forEach((i) => {
        const link = element("a", "", element("li", "", near));
        link.href = `#node=${i}`;
        line(link, nodes[i].id, nodes[i].y, nodes[i].t.slice(0, 120));
      });
      node.o.forEach(([id, y]) => line(element("span", "away", element("li", "", near)), id, y, "not in the page"));
    };

    const show = (i) => {
      const node = nodes[i];
      if (!node) return;
      current = i;
      for (const item of list.children) item.setAttribute("aria-selected", item.id === `hit-${i}`);
      view.replaceChildren();
      element("h3", "", view, node.id);
      const meta = element("p", "meta", view);
      element("span", "", meta, numbers ? numbers.named(node.y) : labels(node.y));
      element("span", "", meta, ROLES[node.r]);
      element("span", "", meta, `degree ${node.d.toLocaleString("en-US")}`);
      element("p", "words", view, node.t || "(no text)");
      if (node.cut) element("p", "note", view, `The text goes on: ${node.cut.toLocaleString("en-US")} bytes in all.`);
      if (numbers) { if (data.entries.length) numbers.predictions(view, node); } else predictions(node);
      reasons(node);
      if (numbers) numbers.hops(view, node); else bars(node);
      neighbours(node);
    };
    search();
    return { show, first: () => show(found[0] ?? 0), shown: () => current };
  };
  return { start };
})();
