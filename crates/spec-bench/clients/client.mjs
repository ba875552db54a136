// Drives a running server with OpenAI's own Node package: node client.mjs BASE_URL KEY MODULE
//
// `cargo xtask clients` starts the server and this; MODULE is where the package was installed. client.py looks closer; this one
// shows that the other client, with its own reader of streams and its own types of errors, is served as well.

import assert from "node:assert/strict";

const [base, key, module] = process.argv.slice(2);
const { default: OpenAI, ...kinds } = await import(module);
const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: key, maxRetries: 0 });
const model = (await client.models.list()).data[0].id;
const question = [{ role: "user", content: "Name three colours of the rainbow." }];
const chat = (options = {}, request = {}) =>
  client.chat.completions.create({ model, messages: question, max_tokens: 24, temperature: 0, ...options }, request);
const complete = (prompt, options = {}) =>
  client.completions.create({ model, prompt, max_tokens: 16, temperature: 0, ...options });
const textOf = async (stream) => {
  let text = "";
  for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? "";
  return text;
};
const weather = {
  type: "function",
  function: {
    name: "get_weather",
    parameters: {
      type: "object",
      properties: { city: { type: "string", enum: ["Paris", "Suzhou"] } },
      required: ["city"],
      additionalProperties: false,
    },
  },
};

const checks = {
  async "completions, streamed and whole, are equal"() {
    const whole = await complete("Once upon a time");
    assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens);
    let text = "";
    for await (const chunk of await complete("Once upon a time", { stream: true })) text += chunk.choices[0]?.text ?? "";
    assert.ok(text.length > 0);
    assert.equal(text, whole.choices[0].text);
  },
  async "chats, streamed and whole, are equal, and usage comes last"() {
    const whole = await chat();
    const chunks = [];
    for await (const chunk of await chat({ stream: true, stream_options: { include_usage: true } })) chunks.push(chunk);
    const text = chunks.map((chunk) => chunk.choices[0]?.delta?.content ?? "").join("");
    assert.equal(text, whole.choices[0].message.content);
    assert.equal(chunks.at(-1).usage.completion_tokens, whole.usage.completion_tokens);
  },
  async "the client's own accumulator of streams gives the whole message"() {
    const whole = await chat();
    const final = await client.chat.completions
      .stream({ model, messages: question, max_tokens: 24, temperature: 0 })
      .finalChatCompletion();
    assert.equal(final.choices[0].message.content, whole.choices[0].message.content);
  },
  async "a seed gives the same choices twice"() {
    const texts = async () =>
      (await chat({ temperature: 1.2, seed: 7, n: 2, max_tokens: 12 })).choices.map((choice) => choice.message.content);
    assert.deepEqual(await texts(), await texts());
  },
  async "log-probabilities are finite and sorted"() {
    const { content } = (await chat({ logprobs: true, top_logprobs: 2, max_tokens: 6 })).choices[0].logprobs;
    assert.ok(content.length > 0);
    for (const token of content) {
      assert.equal(token.top_logprobs.length, 2);
      assert.ok(Number.isFinite(token.logprob) && token.top_logprobs[0].logprob >= token.top_logprobs[1].logprob);
    }
  },
  async "a stop string is not delivered"() {
    const whole = (await chat({ max_tokens: 32 })).choices[0].message.content;
    const words = whole.match(/[a-zA-Z]{4,}/g);
    const stop = words[Math.floor(words.length / 2)];
    const answer = (await chat({ max_tokens: 32, stop: [stop] })).choices[0];
    assert.equal(answer.message.content, whole.slice(0, whole.indexOf(stop)));
    assert.equal(answer.finish_reason, "stop");
  },
  async "a schema is kept to"() {
    const schema = {
      type: "object",
      properties: { colour: { type: "string", enum: ["red", "green"] } },
      required: ["colour"],
      additionalProperties: false,
    };
    const answer = await chat({
      max_tokens: 40,
      response_format: { type: "json_schema", json_schema: { name: "thing", strict: true, schema } },
    });
    assert.ok(["red", "green"].includes(JSON.parse(answer.choices[0].message.content).colour));
  },
  async "a forced tool is called, streamed and whole"() {
    const options = { tools: [weather], tool_choice: { type: "function", function: { name: "get_weather" } }, max_tokens: 60 };
    const call = (await chat(options)).choices[0].message.tool_calls[0].function;
    assert.equal(call.name, "get_weather");
    assert.ok(["Paris", "Suzhou"].includes(JSON.parse(call.arguments).city));
    let streamed = "";
    for await (const chunk of await chat({ ...options, stream: true }))
      for (const delta of chunk.choices[0]?.delta?.tool_calls ?? []) if (delta.index === 0) streamed += delta.function?.arguments ?? "";
    assert.deepEqual(JSON.parse(streamed), JSON.parse(call.arguments));
  },
  async "errors are the client's exceptions"() {
    await assert.rejects(chat({ no_such_field: 1 }), (error) => {
      assert.ok(error instanceof kinds.BadRequestError && /no_such_field/.test(error.message), String(error));
      return true;
    });
    await assert.rejects(chat({ temperature: -1 }), kinds.BadRequestError);
    const wrong = new OpenAI({ baseURL: `${base}/v1`, apiKey: "wrong", maxRetries: 0 });
    await assert.rejects(wrong.models.list(), kinds.AuthenticationError);
  },
  async "an aborted stream leaves the server free"() {
    const stream = await chat({ stream: true, max_tokens: 1000 });
    for await (const _ of stream) break;
    stream.controller.abort();
    assert.ok((await textOf(await chat({ stream: true }))).length > 0);
  },
  async "drafting changes no text and happens"() {
    const prompt = "Repeat: a b c d e f g. a b c d e f g. a b c d e f g. a b";
    const plain = await complete(prompt, { max_tokens: 40, speculation: { enabled: false } });
    const drafted = await complete(prompt, { max_tokens: 40, speculation: { draft_len: 4 } });
    assert.equal(drafted.choices[0].text, plain.choices[0].text);
    assert.equal(plain.speculation.drafted, 0);
    assert.ok(drafted.speculation.drafted > 0, "nothing was drafted, so that the equality shows nothing");
  },
};

let failed = 0;
for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
    console.log(`ok      ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED  ${name}\n${error.stack}`);
  }
}
const total = Object.keys(checks).length;
console.log(`${total - failed} of ${total} checks hold with openai for Node`);
process.exit(failed ? 1 : 0);
