// node search.js SITE QUERY...: what the search of the built site finds, best first, as JSON: [[page, title], ...] a query.
const fs = require("fs");
const vm = require("vm");

const [site, ...queries] = process.argv.slice(2);
const element = { childNodes: [], remove() {}, addEventListener() {} };
const names = {
  document: { addEventListener() {}, getElementById: () => element, querySelector: () => null, documentElement: { dataset: {} } },
  localStorage: { setItem() {} },
  addEventListener() {},
  SPHINX_HIGHLIGHT_ENABLED: false,
  _ready() {},
  _: (text) => text,
  console,
};
names.window = names;
const page = vm.createContext(names);
const files = ["_static/language_data.js", "_static/searchtools.js", "searchindex.js"];
const text = files.map((name) => fs.readFileSync(`${site}/${name}`, "utf8")).join("\n;\n");
vm.runInContext(`${text}\n;window.Search = Search;`, page);
const found = queries.map((query) => page.Search._performSearch(...page.Search._parseQuery(query)).reverse());
console.log(JSON.stringify(found.map((results) => results.map(([name, title]) => [name, title]))));
