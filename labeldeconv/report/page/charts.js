"use strict";
/* The charts, each drawn at the width of its box so that type keeps its size on a phone. */
const Charts = (() => {
  const { svg, wide, widest, fitted, say, scale, mark, legend, canvas, tell, hush, hover, frame } = Pen;

  const lines = (box, spec, width, title) => {
    const strong = spec.series.filter((s) => !s.faint), named = [...new Map(strong.map((s) => [s.name, s])).values()];
    const direct = named.length <= 7 && width >= 480 && !spec.x.names && !(spec.y.form === "pct" && spec.series[0].marks);
    const label = (s) => s.label || s.name;
    if (!direct && named.length > 1) legend(box, named.map((s) => ({ name: label(s), color: s.color })), !spec.series[0].marks);
    const right = direct ? widest(named.map(label)) + 16 : 10;
    const xs = spec.series.flatMap((s) => s.points.map((p) => p[0]));
    const ys = spec.series.flatMap((s) => s.points.flatMap((p) => p[2] ? [p[1] - p[2], p[1] + p[2]] : [p[1]])).filter((v) => v !== null);
    const tall = width < 480 ? 250 : 290;
    const first = Math.min(...xs), span = Math.max(...xs) - first || 1, air = spec.series[0].marks ? 0.06 * span : 0;
    const across = spec.x.names ? spec.x : { ...spec.x, range: [first - air, first + span + air] };
    const f = frame(box, { ...spec, x: across }, width, tall, xs, ys, right, title);
    const room = spec.x.names ? Math.min(9, f.x.slot / (named.length + 1)) : spec.series[0].marks ? 5 : 0;
    const dodge = (k) => (k - (named.length - 1) / 2) * room;
    const ends = [];
    for (const s of [...spec.series].sort((a, b) => (b.faint ? 1 : 0) - (a.faint ? 1 : 0))) {
      const place = dodge(named.findIndex((other) => other.name === s.name));
      const at = s.points.filter((p) => p[1] !== null).map((p) => [f.x.to(p[0]) + place, f.y.to(p[1]), p]);
      const d = at.map((p, i) => `${i ? "L" : "M"}${p[0].toFixed(1)} ${p[1].toFixed(1)}`).join("");
      svg("path", { class: `line k${s.color}${s.faint || (s.marks && spec.x.names) ? " faint" : ""}`, d }, f.root);
      if (s.marks) {
        for (const [x, y, p] of at) {
          if (p[2]) svg("path", { class: `error k${s.color}`, d: `M${x.toFixed(1)} ${f.y.to(p[1] - p[2]).toFixed(1)}V${f.y.to(p[1] + p[2]).toFixed(1)}` }, f.root);
          mark(f.root, s.color, x, y, 0.9);
        }
      }
      if (direct && !s.faint && at.length) ends.push([at[at.length - 1][1], s]);
    }
    ends.sort((a, b) => a[0] - b[0]);
    for (let round = 0; round < 40; round++) {
      for (let i = 1; i < ends.length; i++) {
        const gap = 15 - (ends[i][0] - ends[i - 1][0]);
        if (gap > 0) { ends[i][0] += gap / 2; ends[i - 1][0] -= gap / 2; }
      }
    }
    for (const [y, s] of ends) svg("text", { x: f.right + 8, y: y + 4, class: `k k${s.color}` }, f.root, label(s));
    const cross = svg("path", { class: "cross", d: "" }, f.root);
    const cover = svg("rect", { x: f.left, y: f.top, width: Math.max(0, f.right - f.left), height: f.bottom - f.top, fill: "transparent" }, f.root);
    const places = [...new Set(xs)].sort((a, b) => a - b);
    cover.addEventListener("pointermove", (event) => {
      const rect = f.root.getBoundingClientRect(), at = (event.clientX - rect.left) * width / rect.width;
      const near = places.reduce((best, v) => Math.abs(f.x.to(v) - at) < Math.abs(f.x.to(best) - at) ? v : best, places[0]);
      cross.setAttribute("d", `M${f.x.to(near).toFixed(1)} ${f.top}V${f.bottom}`);
      const rows = [[spec.x.names ? spec.x.names[near] : `${spec.x.title} ${say(near, spec.x.form)}`]];
      for (const s of named) {
        const p = s.points.reduce((best, q) => Math.abs(q[0] - near) < Math.abs(best[0] - near) ? q : best, s.points[0]);
        rows.push([s.color, label(s), say(p[1], spec.y.form) + (p[2] ? ` ± ${say(p[2], spec.y.form)}` : "")]);
      }
      tell(event, rows);
    });
    cover.addEventListener("pointerleave", () => { hush(); cross.setAttribute("d", ""); });
  };

  const scatter = (box, spec, width, title) => {
    const named = [...new Map(spec.series.map((s) => [s.name, s])).values()];
    if (!spec.labels && named.length > 1) legend(box, named);
    const all = spec.series.flatMap((s) => s.points.map((p) => [s, p]));
    const ys = all.flatMap(([, p]) => p[2] ? [p[1] - p[2], p[1] + p[2]] : [p[1]]);
    const f = frame(box, { ...spec, y: { ...spec.y, pad: 0.1 }, x: { ...spec.x, pad: 0.12 } }, width, width < 480 ? 270 : 310,
      all.map(([, p]) => p[0]), ys, 14, title);
    const taken = [];
    for (const [s, p] of all) {
      const x = f.x.to(p[0]), y = f.y.to(p[1]);
      if (p[2]) svg("path", { class: `error k${s.color}`, d: `M${x.toFixed(1)} ${f.y.to(p[1] - p[2]).toFixed(1)}V${f.y.to(p[1] + p[2]).toFixed(1)}` }, f.root);
      const dot = mark(f.root, s.color, x, y, spec.labels ? 1.15 : 0.85);
      taken.push([x - 8, y - 8, x + 8, y + 8]);
      hover(dot, () => [[p[3] || s.name], [s.color, spec.y.title, say(p[1], spec.y.form)], [null, spec.x.title, say(p[0], spec.x.form)]]);
    }
    if (!spec.labels) return;
    for (const [s, p] of all) {
      const x = f.x.to(p[0]), y = f.y.to(p[1]), w = wide(p[3]) * 1.08;
      const spots = [[x + 11, y + 4], [x - 11 - w, y + 4], [x - w / 2, y - 13], [x - w / 2, y + 21], [x + 11, y + 18], [x + 11, y - 10], [x - 11 - w, y - 10], [x - 11 - w, y + 18]];
      const free = spots.find(([a, b]) => a > f.left && a + w < width && taken.every((t) => a > t[2] || a + w < t[0] || b - 11 > t[3] || b + 3 < t[1]));
      if (!free) continue;
      taken.push([free[0], free[1] - 11, free[0] + w, free[1] + 3]);
      svg("text", { x: free[0], y: free[1], class: `k k${s.color}` }, f.root, p[3]);
    }
  };

  /* Rows with a mean, its spread and the single seeds; the numbers stand to the right. */
  const intervals = (box, spec, width, title) => {
    const groups = [...new Set(spec.rows.map((r) => r.group))], pitch = 30, head = groups[0] ? 26 : 0;
    const left = Math.min(widest(spec.rows.map((r) => r.name)) + 20, width * 0.4), right = widest(spec.rows.map((r) => r.text)) * 1.04 + 18;
    const height = spec.rows.length * pitch + groups.length * head + 44;
    const values = spec.rows.flatMap((r) => [r.mean - r.std, r.mean + r.std, ...r.points]);
    const x = scale({ ...spec.x, pad: 0.06 }, values, left + 8, width - right - 8, Math.max(3, (width - left - right) / 90));
    const root = canvas(box, width, height, title), base = height - 40;
    for (const v of x.at) {
      svg("path", { class: "grid", d: `M${x.to(v).toFixed(1)} 4V${base}` }, root);
      svg("text", { x: x.to(v), y: base + 17, "text-anchor": "middle" }, root, x.text(v));
    }
    svg("text", { x: left + 8, y: height - 4, class: "title" }, root, spec.x.title);
    let y = 4;
    for (const group of groups) {
      if (head) { svg("text", { x: 0, y: y + 17, class: "group" }, root, fitted(group, left + 80)); y += head; }
      for (const r of spec.rows.filter((row) => row.group === group)) {
        const middle = y + pitch / 2;
        svg("text", { x: 0, y: middle + 4, class: "strong" }, root, fitted(r.name, left - 8));
        if (r.std) svg("path", { class: `error k${r.color}`, d: `M${x.to(r.mean - r.std).toFixed(1)} ${middle}H${x.to(r.mean + r.std).toFixed(1)}` }, root);
        for (const v of r.points) svg("circle", { class: `point open k${r.color}`, cx: x.to(v), cy: middle, r: 3 }, root);
        mark(root, r.color, x.to(r.mean), middle, 1.15);
        svg("text", { x: width, y: middle + 4, "text-anchor": "end", class: "strong" }, root, r.text);
        hover(svg("rect", { x: 0, y, width, height: pitch, fill: "transparent" }, root), () => [[r.name + (r.group ? `, ${r.group}` : "")],
          [r.color, "mean", say(r.mean, spec.x.form)], ...(r.std ? [[null, "standard deviation", say(r.std, spec.x.form)]] : [])]);
        y += pitch;
      }
    }
  };

  /* Rows of several marks on one axis: ROC-AUC by label. */
  const strip = (box, spec, width, title) => {
    const named = [...new Map(spec.rows.flatMap((r) => r.points).map((p) => [p.name, p])).values()];
    if (named.length > 1) legend(box, named);
    const pitch = 24, height = spec.rows.length * pitch + 44, base = height - 40;
    const left = Math.min(widest(spec.rows.map((r) => r.name)) + 16, width * 0.42);
    const values = spec.rows.flatMap((r) => r.points.map((p) => p.value));
    const x = scale(spec.x, [...values, spec.x.mark ?? values[0]], left + 8, width - 12, (width - left) / 90);
    const root = canvas(box, width, height, title);
    for (const v of x.at) {
      svg("path", { class: "grid", d: `M${x.to(v).toFixed(1)} 4V${base}` }, root);
      svg("text", { x: x.to(v), y: base + 17, "text-anchor": "middle" }, root, x.text(v));
    }
    if (spec.x.mark !== undefined) svg("path", { class: "mark0", d: `M${x.to(spec.x.mark).toFixed(1)} 4V${base}` }, root);
    svg("text", { x: left + 8, y: height - 4, class: "title" }, root, spec.x.title);
    spec.rows.forEach((r, i) => {
      const middle = 4 + (i + 0.5) * pitch;
      svg("text", { x: 0, y: middle + 4, class: "strong" }, root, fitted(r.name, left - 6));
      const at = r.points.map((p) => x.to(p.value));
      svg("path", { class: "grid", d: `M${Math.min(...at).toFixed(1)} ${middle}H${Math.max(...at).toFixed(1)}` }, root);
      for (const p of r.points) mark(root, p.color, x.to(p.value), middle, 0.95);
      hover(svg("rect", { x: 0, y: middle - pitch / 2, width, height: pitch, fill: "transparent" }, root),
        () => [[r.name], ...r.points.map((p) => [p.color, p.name, say(p.value, "pct")])]);
    });
  };

  const stacked = (box, spec, width, title) => {
    legend(box, spec.parts.map((p) => ({ ...p, block: true })));
    const pitch = spec.rows.length > 20 ? 21 : 27, height = spec.rows.length * pitch + 44, base = height - 40;
    const totals = spec.rows.map((r) => r.parts.reduce((a, b) => a + b, 0));
    const left = Math.min(widest(spec.rows.map((r) => r.name)) + 14, width * 0.42), right = widest(totals.map((t) => say(t, spec.x.form))) + 16;
    const x = scale({ ...spec.x, range: [0, Math.max(...totals, 1e-9)] }, [], left, width - right, (width - left - right) / 90);
    const root = canvas(box, width, height, title);
    for (const v of x.at) {
      svg("path", { class: "grid", d: `M${x.to(v).toFixed(1)} 4V${base}` }, root);
      svg("text", { x: x.to(v), y: base + 17, "text-anchor": "middle" }, root, x.text(v));
    }
    svg("text", { x: left, y: height - 4, class: "title" }, root, spec.x.title);
    spec.rows.forEach((r, i) => {
      const y = 4 + i * pitch;
      svg("text", { x: 0, y: y + pitch / 2 + 4, class: "strong" }, root, fitted(r.name, left - 8));
      let sum = 0;
      r.parts.forEach((value, k) => {
        const from = x.to(sum), to = x.to((sum += value));
        if (to - from > 0.2) svg("rect", { class: `block k${spec.parts[k].color}`, x: from.toFixed(1), y: y + 4, width: Math.max(0.5, to - from - 0.8).toFixed(1), height: pitch - 8 }, root);
      });
      svg("text", { x: x.to(sum) + 7, y: y + pitch / 2 + 4 }, root, say(sum, spec.x.form));
      hover(svg("rect", { x: 0, y, width, height: pitch, fill: "transparent" }, root), () => [[r.name],
        ...spec.parts.map((p, k) => [p.color, p.name, say(r.parts[k], spec.x.form)]).filter((_, k) => r.parts[k])]);
    });
  };

  const bars = (box, spec, width, title) => {
    const chart = { ...spec, x: { ...spec.x, names: spec.names }, y: { ...spec.y, range: [0, Math.max(...spec.values, 1) * 1.06] } };
    const f = frame(box, chart, width, width < 480 ? 240 : 290, [], [], 8, title);
    spec.values.forEach((value, i) => {
      const across = Math.min(54, f.x.slot * 0.72), y = f.y.to(value);
      const bar = svg("rect", { class: "block k3", x: (f.x.to(i) - across / 2).toFixed(1), y: y.toFixed(1), width: across.toFixed(1), height: Math.max(0, f.bottom - y).toFixed(1) }, f.root);
      hover(bar, () => [[`${spec.x.title} ${spec.names[i]}`], [null, spec.y.title, say(value, spec.y.form)]]);
    });
  };

  const heat = (box, spec, width, title) => {
    const many = spec.columns.length, left = Math.min(widest(spec.rows) + 14, width * 0.3);
    const cell = Math.min((width - left - 2) / many, 62), tall = Math.min(Math.max(cell, 15), 32);
    const slant = widest(spec.columns) > cell - 6, top = (spec.x.title === spec.y.title ? 4 : 24) + (slant ? Math.min(widest(spec.columns), 110) * 0.72 + 12 : 20);
    const height = top + spec.rows.length * tall + 4, root = canvas(box, width, height, title);
    const same = spec.x.title === spec.y.title;
    svg("text", { x: 0, y: 12, class: "title" }, root, same ? "" : fitted(`rows: ${spec.y.title}; columns: ${spec.x.title}`, width));
    const most = spec.most || 1;
    spec.columns.forEach((name, k) => {
      const x = left + (k + 0.5) * cell;
      if (slant && cell < 9) return;
      svg("text", slant ? { transform: `translate(${x + 3} ${top - 7}) rotate(-45)` } : { x, y: top - 8, "text-anchor": "middle" }, root, slant ? fitted(name, 110) : name);
    });
    spec.rows.forEach((name, i) => {
      const y = top + i * tall;
      svg("text", { x: left - 8, y: y + tall / 2 + 4, "text-anchor": "end", class: "strong" }, root, fitted(name, left - 10));
      spec.values[i].forEach((value, k) => {
        const share = value === null ? 0 : Math.min(1, Math.max(0, value / most));
        const box = svg("rect", { class: "heat", x: (left + k * cell).toFixed(1), y, width: (cell - 1).toFixed(1), height: tall - 1, "fill-opacity": (0.04 + 0.96 * share).toFixed(3) }, root);
        const text = spec.form === "pct" ? (value * 100).toFixed(0) : value === null ? "" : value.toFixed(2);
        if (cell > 24 && tall > 14 && (value > 0.005 || spec.form !== "pct")) {
          svg("text", { x: left + (k + 0.5) * cell - 0.5, y: y + tall / 2 + 4, "text-anchor": "middle", class: share > 0.55 ? "over" : "strong", "pointer-events": "none" }, root, text);
        }
        hover(box, () => [[`${spec.y.title}: ${name}`], [null, `${spec.x.title}: ${spec.columns[k]}`, spec.form === "pct" ? `${say(value, "pct")}%` : text]]);
      });
    });
  };

  /* The numbers behind a chart, for readers who cannot see it or want to copy them; [] where they are too many. */
  const numbers = (spec) => {
    if (spec.type === "scatter") {
      return [["name", spec.x.title, spec.y.title], ...spec.series.flatMap((s) => s.points.map((p) => [p[3] && p[3] !== s.name ? `${s.name}: ${p[3]}` : s.name, say(p[0], spec.x.form), say(p[1], spec.y.form)]))];
    }
    if (spec.type === "stacked") return [["", ...spec.parts.map((p) => p.name)], ...spec.rows.map((r) => [r.name, ...r.parts.map((v) => say(v, spec.x.form))])];
    if (spec.type === "bars") return [[spec.x.title, spec.y.title], ...spec.values.map((v, i) => [spec.names[i], say(v, spec.y.form)])];
    if (spec.type === "lines" && spec.series.every((s) => s.points.length <= 40)) {
      const strong = spec.series.filter((s) => !s.faint), xs = [...new Set(strong.flatMap((s) => s.points.map((p) => p[0])))].sort((a, b) => a - b);
      const at = (s, x) => { const p = s.points.find((q) => q[0] === x); return p ? say(p[1], spec.y.form) : ""; };
      return [[spec.x.title, ...strong.map((s) => s.label || s.name)], ...xs.map((x) => [spec.x.names ? spec.x.names[x] : say(x, spec.x.form), ...strong.map((s) => at(s, x))])];
    }
    return [];
  };

  const KINDS = { lines, scatter, intervals, strip, stacked, bars, heat };
  const draw = (box, spec, title, width) => {
    box.replaceChildren();
    KINDS[spec.type](box, spec, Math.max(240, Math.round(width)), title);
  };
  return { draw, numbers };
})();
