"use strict";
/* The server's openapi.json as a page: paths, their bodies and their answers. */
(async () => {
  let held = "";
  try { held = sessionStorage.labeldeconvToken || ""; } catch { /* no storage: no token */ }
  const answer = await fetch("openapi.json", { headers: held ? { Authorization: `Bearer ${held}` } : {} });
  if (!answer.ok) {
    document.getElementById("wrong").textContent = "This server needs a token: give it on the page before this one.";
    return;
  }
  const api = await answer.json(), box = document.getElementById("paths");
  const named = (schema) => (schema && schema.$ref ? schema.$ref.split("/").pop() : null);
  const kind = (schema) => {
    if (named(schema)) return named(schema);
    if (schema.anyOf) return [...new Set(schema.anyOf.map(kind))].join(" or ");
    if (schema.prefixItems) return `[${schema.prefixItems.map(kind).join(", ")}]`;
    if (schema.type === "array") return `list of ${kind(schema.items || {})}`;
    return (schema.enum ? schema.enum.map((value) => JSON.stringify(value)).join(" or ") : schema.type) || "anything";
  };
  const fields = (name) => {
    const schema = api.components.schemas[name];
    element("h4", "", box, name);
    if (schema.description) element("p", "note", box, schema.description);
    const table = element("table", "", element("div", "scroll", box)), rows = element("tbody", "", table);
    for (const [field, held] of Object.entries(schema.properties || {})) {
      const row = element("tr", "", rows);
      element("th", (schema.required || []).includes(field) ? "best" : "", row, field);
      element("td", "", row, kind(held));
      element("td", "", row, held.description || "");
    }
  };
  const seen = new Set();
  const follow = (schema) => {
    const text = JSON.stringify(schema || {});
    for (const [, name] of text.matchAll(/#\/components\/schemas\/([^"]+)/g)) {
      if (seen.has(name) || /ValidationError/.test(name)) continue;
      seen.add(name);
      fields(name);
      follow(api.components.schemas[name]);
    }
  };
  for (const [path, ways] of Object.entries(api.paths)) {
    for (const [method, told] of Object.entries(ways)) {
      element("h2", "", box, `${method.toUpperCase()} ${path}`);
      element("p", "note", box, told.description || told.summary);
      for (const given of told.parameters || []) element("p", "note", box, `${given.name}: ${kind(given.schema)}`);
      const body = told.requestBody && told.requestBody.content["application/json"].schema;
      const examples = body && named(body) && api.components.schemas[named(body)].examples;
      if (examples) element("pre", "", box, JSON.stringify(examples[0]));
      follow(body);
      follow((((told.responses["200"] || {}).content || {})["application/json"] || {}).schema);
    }
  }
})();
