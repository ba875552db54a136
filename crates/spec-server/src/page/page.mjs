// The page: what is asked goes to the server's own interface, and what comes back is shown as text, never as markup.

import { bars, ceiling, line } from "/page/chart.mjs";
import { firstDifference, Rounds, Speed } from "/page/rounds.mjs";
import { chat, figures, headers, inWords, loading, metrics, percent } from "/page/stream.mjs";

const $ = (id) => document.getElementById(id);
const state = { messages: [], running: null, key: sessionStorage.getItem("key") ?? "", model: "" };

function make(name, className, text) {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

// Settings

function number(id) {
  const text = $(id).value.trim();
  return text === "" ? undefined : Number(text);
}

/** The request's fields beside its messages. Without a seed one is drawn here, so that an answer can be had again. */
function settings() {
  const temperature = number("temperature") ?? 0;
  const speculation = { drafter: $("drafter").value };
  if (number("draft-len") !== undefined) speculation.draft_len = number("draft-len");
  if ($("rule").value) speculation.rule = $("rule").value;
  return {
    model: state.model,
    temperature,
    seed: number("seed") ?? crypto.getRandomValues(new Uint32Array(1))[0],
    max_tokens: number("max-tokens") ?? 256,
    stream_options: { include_usage: true },
    spec_info: true,
    speculation,
  };
}

function prompted(messages) {
  const system = $("system").value.trim();
  return system ? [{ role: "system", content: system }, ...messages] : messages;
}

function applyMarks() {
  document.body.classList.toggle("marks", $("show-marks").checked);
  document.body.classList.toggle("with-rejected", $("show-rejected").checked && $("show-marks").checked);
  document.querySelector(".of-rejected").hidden = !$("show-rejected").checked;
}

// Answers

/** One answer under way: its text, its figures, and when they came. */
class Answer {
  text = "";
  rounds = new Rounds();
  speed = new Speed();
  last = {};

  constructor(place) {
    this.place = place;
  }

  take(chunk, now) {
    for (const key of ["speculation", "timings", "usage"]) if (chunk[key]) this.last[key] = chunk[key];
    const choice = chunk.choices?.[0];
    if (!choice) return;
    if (choice.finish_reason) this.finish = choice.finish_reason;
    const content = choice.delta?.content ?? "";
    const tokens = choice.spec_tokens ?? [];
    for (const token of tokens) {
      this.rounds.push(token);
      this.speed.push(now);
    }
    this.text += content;
    // The marked pieces are shown if they are the text, else the text is.
    if (tokens.map((token) => token.text).join("") === content) {
      for (const token of tokens) this.#show(token);
    } else {
      this.place.append(content);
    }
  }

  #show({ text, source, rejected }) {
    if (rejected?.length > 0) this.place.append(make("del", "token rejected", rejected.join("")));
    if (text !== "") this.place.append(make("span", `token ${source}`, text));
  }

  /** What is known of it at its end, on one line. */
  summary() {
    const { speculation, timings, usage } = this.last;
    const parts = [];
    if (usage) parts.push(`${usage.completion_tokens} tokens`);
    if (timings) parts.push(`${timings.predicted_per_second.toFixed(1)} tokens/s`);
    if (speculation) {
      parts.push(`drafter ${speculation.drafter}`);
      if (speculation.drafted > 0) parts.push(`${speculation.accepted} of ${speculation.drafted} drafted accepted`);
      parts.push(`${speculation.tokens_per_round.toFixed(2)} tokens a round`, `rule ${speculation.rule}`);
    }
    const cached = usage?.prompt_tokens_details?.cached_tokens;
    if (cached > 0) parts.push(`${cached} prompt tokens cached`);
    if (this.finish === "length") parts.push("cut at its limit");
    return parts.join(" · ");
  }
}

let drawn = null;

/** Draws the figures of an answer before the next frame, however many tokens come until then. */
function draw(answer) {
  if (drawn === null) {
    requestAnimationFrame(() => {
      const shown = drawn;
      drawn = null;
      drawNow(shown);
    });
  }
  drawn = answer;
}

function drawNow({ rounds, speed, last }) {
  const exact = last.speculation;
  const { accepted, drafted } = exact ?? rounds;
  const rate = last.timings?.predicted_per_second ?? speed.points.at(-1)?.[1];
  const perRound = exact?.tokens_per_round ?? rounds.tokensPerRound;
  $("speed").textContent = rate === undefined ? "–" : rate.toFixed(1);
  $("acceptance").textContent = percent(accepted, drafted);
  $("per-round").textContent = perRound > 0 ? perRound.toFixed(2) : "–";
  line($("chart-speed"), speed.points);
  const positions = exact?.by_position ?? rounds.positions;
  const byPosition = positions.map(({ drafted: all, accepted: kept }, index) => ({
    value: all > 0 ? kept / all : 0,
    of: 1,
    label: `place ${index + 1}: ${kept} of ${all}`,
  }));
  bars($("chart-position"), byPosition, { top: { value: 1, label: "100%" }, left: "first", right: `place ${byPosition.length || "–"}` });
  // The latest rounds, as many as can be told apart.
  const from = Math.max(rounds.sizes.length - 90, 0);
  const sizes = rounds.sizes.slice(from);
  const top = ceiling(Math.max(...sizes, 1));
  const byRound = sizes.map((value, index) => ({ value, of: 0, label: `round ${from + index + 1}: ${value}` }));
  bars($("chart-rounds"), byRound, { top: { value: top, label: String(top) }, left: `round ${sizes.length > 0 ? from + 1 : "–"}`, right: String(rounds.sizes.length || "–") });
}

function fault(error) {
  if (error.status === 401) askForKey();
  if (error instanceof TypeError) return `The server cannot be reached (${error.message}).`;
  return error.message;
}

/** Streams one answer into `place`; `after` is called behind each chunk. Gives the answer, `error` set where it failed. */
async function stream(body, place, signal, after) {
  const answer = new Answer(place);
  const begun = performance.now();
  try {
    for await (const chunk of chat(body, { key: state.key, signal })) {
      const now = performance.now();
      answer.first ??= now - begun;
      answer.take(chunk, now);
      after(answer, now - begun);
    }
  } catch (error) {
    answer.error = error.name === "AbortError" ? "stopped" : fault(error);
  }
  answer.took = performance.now() - begun;
  after(answer, answer.took);
  return answer;
}

function busy(controller) {
  state.running = controller;
  $("send").disabled = controller !== null;
  $("clear").disabled = controller !== null;
  $("stop").disabled = controller === null;
}

// Chat

function message(role) {
  const element = make("article", `message ${role}`);
  const text = make("p", "text");
  element.append(make("h3", "", role === "user" ? "You" : state.model || "Model"), text);
  $("log").append(element);
  return { element, text };
}

/** Keeps the end in sight, unless somebody has scrolled up to read. */
function follow(place, add) {
  const atEnd = place.scrollHeight - place.scrollTop - place.clientHeight < 60;
  add();
  if (atEnd) place.scrollTop = place.scrollHeight;
}

async function ask(text) {
  const log = $("log");
  const asked = message("user");
  asked.text.textContent = text;
  const { element, text: place } = message("assistant");
  log.scrollTop = log.scrollHeight;
  const messages = [...state.messages, { role: "user", content: text }];
  const controller = new AbortController();
  busy(controller);
  const body = { ...settings(), messages: prompted(messages) };
  const answer = await stream(body, place, controller.signal, (current) => {
    follow(log, () => {});
    draw(current);
  });
  busy(null);
  follow(log, () => {
    if (answer.error && answer.error !== "stopped") element.append(make("p", "error", answer.error));
    element.append(make("p", "note", answer.error === "stopped" ? "stopped" : `${answer.summary()} · seed ${body.seed}`));
  });
  if (answer.error && answer.text === "") {
    // Nothing was answered: the question goes back to where it can be sent again.
    $("prompt").value ||= text;
  } else {
    state.messages = [...messages, { role: "assistant", content: answer.text }];
  }
  $("said").textContent = answer.error ?? "The answer is complete.";
}

// Race

const LANES = ["plain", "spec"];

async function race(text) {
  const controller = new AbortController();
  busy(controller);
  $("verdict").textContent = "";
  for (const lane of LANES) {
    $(`text-${lane}`).replaceChildren();
    $(`clock-${lane}`).textContent = "waiting";
    $(`text-${lane}`).parentElement.classList.remove("won");
  }
  const common = { ...settings(), messages: prompted([{ role: "user", content: text }]) };
  const run = (lane) => {
    const speculation = lane === "plain" ? { enabled: false } : common.speculation;
    const place = $(`text-${lane}`);
    return stream({ ...common, speculation }, place, controller.signal, (answer, took) => {
      follow(place.parentElement, () => {});
      $(`clock-${lane}`).textContent = `${(took / 1000).toFixed(1)} s · ${answer.rounds.sizes.length} rounds`;
      if (lane === "spec") draw(answer);
    });
  };
  let plain, spec;
  if ($("race-order").value === "both") {
    [plain, spec] = await Promise.all(LANES.map(run));
  } else {
    plain = await run("plain");
    spec = plain.error ? plain : await run("spec");
  }
  busy(null);
  const failed = plain.error ?? spec.error;
  $("verdict").textContent = failed ?? verdict(plain, spec, common);
}

/** Whether both said the same, and which was faster: by the server's clock, from first token to last. */
function verdict(plain, spec, { speculation, temperature }) {
  const at = firstDifference(plain.text, spec.text);
  const draws = temperature > 0 && ["rejection", "block"].includes(speculation.rule);
  const texts =
    at < 0
      ? `The texts are equal: ${plain.text.length} characters.`
      : draws
        ? `The texts part at character ${at + 1}: the rule ${speculation.rule} keeps the law of answers, not each answer.`
        : `THE TEXTS DIFFER at character ${at + 1}.`;
  const rates = [plain, spec].map(({ last }) => last.timings?.predicted_per_second ?? 0);
  for (const [index, lane] of LANES.entries()) {
    const answer = [plain, spec][index];
    $(`clock-${lane}`).textContent =
      `${rates[index].toFixed(1)} tokens/s · first token after ${(answer.first / 1000).toFixed(2)} s · ${answer.rounds.sizes.length} rounds`;
  }
  if (!(rates[0] > 0 && rates[1] > 0)) return texts;
  const ratio = rates[1] / rates[0];
  $(`text-${ratio >= 1 ? "spec" : "plain"}`).parentElement.classList.add("won");
  return `${texts} Speculative at ${ratio.toFixed(2)} times the speed of plain.`;
}

// The server

function askForKey() {
  $("key-form").hidden = false;
  $("key").focus();
}

async function look() {
  const status = $("status");
  const show = (text, kind) => {
    if (status.textContent !== text) status.textContent = text;
    status.dataset.state = kind;
  };
  try {
    const options = { headers: headers(state.key), signal: AbortSignal.timeout(5000) };
    if (state.model === "") {
      const models = await fetch("/v1/models", options);
      if (models.ok) {
        state.model = (await models.json()).data[0].id;
        $("model").textContent = state.model;
      } else if (models.status === 401) {
        if ($("key-form").hidden) askForKey();
        return show("a key is needed", "lost");
      }
    }
    const health = await fetch("/health", options);
    if (!health.ok) {
      const said = await health.text();
      return show(loading(said) ?? inWords(health.status, said), "lost");
    }
    const answer = await fetch("/metrics", options);
    if (!answer.ok) return show("ready", "ready");
    const { load, kv, kept, gaveWay } = figures(metrics(await answer.text()));
    show(load, "ready");
    // Beside the status, which is read out to those who do not see it, and would be with every percent.
    for (const [id, text] of [["kv", kv], ["kept", kept], ["gave-way", gaveWay]]) $(id).textContent = text;
  } catch {
    show("the server cannot be reached", "lost");
  }
}

/** Leaves out the drafters that this server does not have, by what it says of itself. */
async function offer() {
  const document = await (await fetch("/openapi.json")).json();
  const body = document.paths["/v1/chat/completions"].post.requestBody.content["application/json"].schema;
  const known = body.properties.speculation.properties.drafter.enum;
  for (const option of [...$("drafter").options]) {
    if (Array.isArray(known) && !known.includes(option.value)) option.remove();
  }
}

// What the reader does

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = $("prompt").value.trim();
  if (text === "" || state.running) return;
  if ($("chat").hidden) {
    race(text);
  } else {
    $("prompt").value = "";
    ask(text);
  }
});
$("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $("composer").requestSubmit();
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") state.running?.abort();
});
$("stop").addEventListener("click", () => state.running?.abort());
$("clear").addEventListener("click", () => {
  state.messages = [];
  $("log").replaceChildren();
  $("prompt").focus();
});
$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  state.key = $("key").value.trim();
  sessionStorage.setItem("key", state.key);
  $("key-form").hidden = true;
  $("prompt").focus();
  look();
});
for (const id of ["show-marks", "show-rejected"]) $(id).addEventListener("change", applyMarks);

const tabs = [$("tab-chat"), $("tab-race")];
function select(tab) {
  for (const other of tabs) {
    const chosen = other === tab;
    other.setAttribute("aria-selected", chosen);
    other.tabIndex = chosen ? 0 : -1;
    $(other.getAttribute("aria-controls")).hidden = !chosen;
  }
  $("send").textContent = tab.id === "tab-race" ? "Race" : "Send";
}
for (const tab of tabs) {
  tab.addEventListener("click", () => select(tab));
  tab.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    const other = tabs[1 - tabs.indexOf(tab)];
    select(other);
    other.focus();
  });
}

const THEMES = [["", "as the system has them"], ["light", "light"], ["dark", "dark"]];
function theme(name) {
  document.documentElement.dataset.theme = name;
  localStorage.setItem("theme", name);
  $("theme").setAttribute("aria-label", `Colours: ${THEMES.find(([known]) => known === name)?.[1] ?? name}`);
}
$("theme").addEventListener("click", () => {
  const at = THEMES.findIndex(([name]) => name === document.documentElement.dataset.theme);
  theme(THEMES[(at + 1) % THEMES.length][0]);
});
theme(localStorage.getItem("theme") ?? "");

applyMarks();
drawNow(new Answer(null));
offer().catch(() => {});
look();
setInterval(look, 2000);
