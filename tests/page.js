// What a page computes, under node: node page.js PAGE < tasks.json; answers in JSON.
"use strict";
const fs = require("fs"), vm = require("vm");

const html = fs.readFileSync(process.argv[2], "utf8");
vm.runInThisContext(html.match(/<script>(.*?)<\/script>/s)[1]);
const run = vm.runInThisContext(`new Run(${html.match(/<script type="application\/json" id="data">(.*?)<\/script>/s)[1]})`);

const tasks = {
  encode: ({ texts, side = "source" }) => texts.map((text) => run[side].encode(text)),
  decode: ({ tokens }) => tokens.map((each) => run.target.decode(each)),
  greedy: ({ texts, off = [] }) =>
    texts.map((text) => {
      const { tokens, score } = run.greedy(run.source.encode(text), new Set(off));
      return { text: run.target.decode(tokens), score };
    }),
  maps: ({ text }) => {
    const { maps } = run.greedy(run.source.encode(text), new Set());
    return Object.fromEntries(Object.entries(maps).map(([name, heads]) => [name, heads.map((rows) => rows.map((row) => [...row]))]));
  },
  logProb: ({ pairs, off = [] }) =>
    pairs.map(([source, target]) => run.logProb(run.source.encode(source), new Set(off), run.target.encode(target))),
  every: async ({ example, heads }) => {
    const found = {}, source = run.source.encode(example.source), colour = (head, change) => (found[head] = change);
    const whole = run.greedy(source, new Set()), cells = new Map(heads.map((head) => [head]));
    const page = Object.create(vm.runInThisContext("Page.prototype"));
    await Object.assign(page, { run, example, source, colour, whole, cells }).tryEvery();
    return found;
  },
};

const asked = JSON.parse(fs.readFileSync(0, "utf8"));
const answers = Promise.all(asked.map(({ task, ...given }) => tasks[task](given)));
answers.then((found) => process.stdout.write(JSON.stringify(found)));
