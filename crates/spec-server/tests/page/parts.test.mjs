// What the page computes, without a browser: node --test.

import assert from "node:assert/strict";
import test from "node:test";

import { ceiling } from "../../src/page/chart.mjs";
import { firstDifference, Rounds, Speed } from "../../src/page/rounds.mjs";
import { EventReader, figures, inWords, loading, metrics } from "../../src/page/stream.mjs";

test("events are the same however the stream is cut", () => {
  const text = ': hello\ndata: {"a":1}\n\ndata: one\r\ndata: two\r\n\r\nevent: x\ndata:  three \n\ndata: [DONE]\n\n';
  const whole = new EventReader().push(text);
  assert.deepEqual(whole, ['{"a":1}', "one\ntwo", " three ", "[DONE]"]);
  for (let size = 1; size < text.length; size += 1) {
    const reader = new EventReader();
    const events = [];
    for (let at = 0; at < text.length; at += size) events.push(...reader.push(text.slice(at, at + size)));
    assert.deepEqual(events, whole, `pieces of ${size}`);
  }
});

test("an event without its end is none yet", () => {
  assert.deepEqual(new EventReader().push("data: half\n"), []);
});

test("rounds end with the model's own tokens", () => {
  const rounds = new Rounds();
  const tokens = [
    { source: "target", rejected: [] },
    { source: "accepted" },
    { source: "accepted" },
    { source: "bonus" },
    { source: "accepted" },
    { source: "corrected", rejected: ["x", "y"] },
    { source: "corrected", rejected: ["z"] },
  ];
  for (const token of tokens) rounds.push(token);
  assert.deepEqual(rounds.sizes, [1, 3, 2, 1]);
  assert.deepEqual([rounds.drafted, rounds.accepted], [6, 3]);
  assert.deepEqual(rounds.positions, [
    { drafted: 3, accepted: 2 },
    { drafted: 2, accepted: 1 },
    { drafted: 1, accepted: 0 },
  ]);
  assert.equal(rounds.tokensPerRound, 7 / 4);
});

test("speed is that of the last second", () => {
  const speed = new Speed();
  for (let at = 0; at <= 2000; at += 100) speed.push(at);
  for (let at = 2050; at <= 4000; at += 50) speed.push(at);
  const rates = new Map(speed.points);
  assert.equal(rates.get(1000), 10);
  assert.equal(rates.get(2000), 10);
  assert.equal(rates.get(4000), 20);
});

test("texts are compared to their ends", () => {
  assert.equal(firstDifference("same", "same"), -1);
  assert.equal(firstDifference("same", "some"), 1);
  assert.equal(firstDifference("same", "same again"), 4);
});

test("scales end at round numbers", () => {
  assert.deepEqual([0, 0.3, 1, 3, 17, 100, 101].map(ceiling), [1, 0.5, 1, 5, 20, 100, 200]);
});

test("labels of a metric are summed and comments are not read", () => {
  const sums = metrics('# HELP a words 3\na 1\nb{x="1"} 2\nb{x="}"} 3.5\nc{le="+Inf"} +Inf\n');
  assert.deepEqual([...sums].slice(0, 2), [["a", 1], ["b", 5.5]]);
});

test("refusals are told in the server's words, or by their status", () => {
  assert.equal(inWords(400, '{"error":{"message":"no such model"}}'), "no such model");
  assert.match(inWords(502, "<html>"), /502/);
});

test("the server's caches are told as shares, and what is not there as a dash", () => {
  const none = { load: "0 running · 0 waiting", kv: "–", kept: "–", gaveWay: "0" };
  assert.deepEqual(figures(new Map()), none);
  const served = `spec_requests_running 2\nspec_requests_waiting 1\nspec_kv_blocks_total 200\nspec_kv_blocks_used 31
spec_draft_cache_hits_total 3\nspec_draft_cache_misses_total 1\nspec_preemptions_total 7\n`;
  assert.deepEqual(figures(metrics(served)), { load: "2 running · 1 waiting", kv: "16 %", kept: "75 %", gaveWay: "7" });
});

test("a model on its way is told by how far it has come", () => {
  assert.equal(loading('{"status":"loading","progress":0.42}'), "the model is loaded: 42 %");
  assert.equal(loading('{"status":"loading","progress":null}'), "the model is loaded");
  assert.equal(loading('{"status":"device lost"}'), undefined);
  assert.equal(loading("<html>"), undefined);
});
