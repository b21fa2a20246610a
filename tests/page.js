// What a page computes, under node: node page.js PAGE < tasks.json; answers in JSON.
"use strict";
const fs = require("fs"), vm = require("vm");

const html = fs.readFileSync(process.argv[2], "utf8");
vm.runInThisContext(html.match(/<script>(.*?)<\/script>/s)[1]);
const [Run, betweenWords, wordGroups] = ["Run", "betweenWords", "wordGroups"].map((name) => vm.runInThisContext(name));
const data = JSON.parse(html.match(/<script type="application\/json" id="data">(.*?)<\/script>/s)[1]);
const runs = data.runs.map((run) => new Run(run, data.tokenizers));

const begin = (text, run, off = []) => runs[run].begin(runs[run].source.encode(text), new Set(off));

const tasks = {
  encode: ({ texts, run = 0, side = "source" }) => texts.map((text) => runs[run][side].encode(text)),
  decode: ({ tokens, run = 0 }) => tokens.map((each) => runs[run].target.decode(each)),
  greedy: ({ texts, run = 0, off = [] }) =>
    texts.map((text) => {
      const { tokens, score } = runs[run].greedy(begin(text, run, off));
      return { text: runs[run].target.decode(tokens), score };
    }),
  maps: ({ text, run = 0 }) => {
    const { maps } = runs[run].greedy(begin(text, run));
    return Object.fromEntries(Object.entries(maps).map(([name, heads]) => [name, heads.map((rows) => rows.map((row) => [...row]))]));
  },
  logProb: ({ pairs, run = 0, off = [] }) =>
    pairs.map(([source, target]) => runs[run].logProb(begin(source, run, off), runs[run].target.encode(target))),
  words: ({ pieces }) => wordGroups(pieces),
  between: ({ rows, queries, keys }) => betweenWords(rows, queries, keys),
};

const asked = JSON.parse(fs.readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(asked.map(({ task, ...given }) => tasks[task](given))));
