// Server-sent events, and requests for completions that stream them.

/** Cuts a stream of text into the data of its events, however the text was cut on its way. */
export class EventReader {
  #rest = "";
  #data = [];

  /** Takes the next piece of text; gives the data of the events that it completes. */
  push(text) {
    const events = [];
    this.#rest += text;
    let end;
    while ((end = this.#rest.indexOf("\n")) >= 0) {
      const line = this.#rest.slice(0, end).replace(/\r$/, "");
      this.#rest = this.#rest.slice(end + 1);
      if (line === "") {
        if (this.#data.length > 0) events.push(this.#data.join("\n"));
        this.#data = [];
      } else if (line.startsWith("data:")) {
        this.#data.push(line.slice(5).replace(/^ /, ""));
      }
      // Comments keep the connection alive; other fields say nothing here.
    }
    return events;
  }
}

/** A refusal of the server, with what it said and its status. */
export class ServerError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** What a failed response says, in words. */
export function inWords(status, body) {
  try {
    const message = JSON.parse(body).error?.message;
    if (typeof message === "string" && message !== "") return message;
  } catch {
    // A proxy in between answers with a page of its own.
  }
  return `the server answered with status ${status}`;
}

export function headers(key) {
  return key ? { authorization: `Bearer ${key}` } : {};
}

/** Streams a chat completion: yields each chunk, parsed. Throws `ServerError` for refusals, before and within the stream. */
export async function* chat(body, { key, signal }) {
  const response = await fetch("/v1/chat/completions", {
    method: "POST",
    headers: { "content-type": "application/json", ...headers(key) },
    body: JSON.stringify({ ...body, stream: true }),
    signal,
  });
  if (!response.ok) throw new ServerError(inWords(response.status, await response.text()), response.status);
  const reader = new EventReader();
  const decoder = new TextDecoder();
  for (const parts = response.body.getReader(); ;) {
    const { done, value } = await parts.read();
    if (done) throw new ServerError("the answer broke off", response.status);
    for (const data of reader.push(decoder.decode(value, { stream: true }))) {
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ServerError(chunk.error.message, response.status);
      yield chunk;
    }
  }
}

/** Samples of Prometheus' text format: for each name, the sum over its labels. */
export function metrics(text) {
  const sums = new Map();
  for (const line of text.split("\n")) {
    const sample = /^([a-zA-Z_:][\w:]*)(?:\{.*\})? (\S+)/.exec(line);
    if (sample) sums.set(sample[1], (sums.get(sample[1]) ?? 0) + Number(sample[2]));
  }
  return sums;
}
