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

/** A share in percent, or a dash where there is nothing to have a share of. */
export function percent(part, whole) {
  return whole > 0 ? `${((100 * part) / whole).toFixed(0)} %` : "–";
}

/** What the page says of the server, by its metrics: who is there, and how the caches do. */
export function figures(sums) {
  const sum = (name) => sums.get(name) ?? 0;
  const [hits, misses] = [sum("spec_draft_cache_hits_total"), sum("spec_draft_cache_misses_total")];
  return {
    load: `${sum("spec_requests_running")} running · ${sum("spec_requests_waiting")} waiting`,
    kv: percent(sum("spec_kv_blocks_used"), sum("spec_kv_blocks_total")),
    kept: percent(hits, hits + misses),
    gaveWay: String(sum("spec_preemptions_total")),
  };
}

/** What a server says at /health that does not answer yet, in words; nothing where it is another matter. */
export function loading(body) {
  try {
    const { status, progress } = JSON.parse(body);
    if (status !== "loading") return undefined;
    return typeof progress === "number" ? `the model is loaded: ${percent(progress, 1)}` : "the model is loaded";
  } catch {
    return undefined;
  }
}
