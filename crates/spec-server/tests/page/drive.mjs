// The page in a browser, on a real server and a real model: node drive.mjs SPEC MODEL CHROMIUM [SCREENSHOT]
//
// Everything is done as a reader does it, with mouse and keys.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { Browser } from "./browser.mjs";

const [spec, model, chromium, screenshot] = process.argv.slice(2);
assert(chromium, "usage: node drive.mjs SPEC MODEL CHROMIUM [SCREENSHOT]");

const KEY = "the-key-of-the-page";

/** Starts the server on a free port, with a key; its process and address. */
function serve() {
  const folder = mkdtempSync(join(tmpdir(), "spec-keys-"));
  const keys = join(folder, "keys");
  writeFileSync(keys, `${KEY} page\n`);
  const words = ["--model", model, "--served-model-name", "SmolLM2-135M-Instruct", "--port", "0", "--api-keys", keys];
  const server = spawn(spec, ["serve", "--config", "none", ...words], { stdio: ["ignore", "pipe", "pipe"] });
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  return new Promise((resolve, reject) => {
    let said = "";
    const read = (text) => {
      said += text;
      const address = /http:\/\/127\.0\.0\.1:\d+/.exec(said)?.[0];
      if (address) resolve({ server, address, key: KEY });
    };
    server.stdout.setEncoding("utf8").on("data", read);
    server.stderr.setEncoding("utf8").on("data", read);
    server.on("exit", (code) => reject(new Error(`the server ended with ${code}:\n${said}`)));
  });
}

const idle = "document.querySelector('#stop').disabled";
const last = (selector) => `([...document.querySelectorAll(${JSON.stringify(selector)})].at(-1)?.textContent ?? "")`;
const count = (selector) => `document.querySelectorAll(${JSON.stringify(selector)}).length`;
const LINE = "The quick brown fox jumps over the lazy dog and the slow red hen. ";

const claims = {
  async "it asks for the key until it has the right one, and keeps it"(browser) {
    // A server that was there before may have none.
    if (!key) return;
    const form = "document.querySelector('#key-form').hidden";
    await browser.until(`!${form}`);
    assert.equal(await browser.value("document.querySelector('#status').textContent"), "a key is needed");
    await browser.type("#key", "another-key");
    await browser.press("Enter");
    await browser.until(`sessionStorage.getItem("key") === "another-key" && !${form}`);
    await browser.type("#key", key);
    await browser.press("Enter");
    await browser.until(`${form} && document.querySelector('#status').dataset.state === 'ready'`);
    // The tab has it still, and another one has not.
    await browser.open(address);
    await browser.until("document.querySelector('#status').dataset.state === 'ready'");
    assert(await browser.value(form));
    assert.equal(await browser.value("localStorage.getItem('key')"), null);
    browser.complaints = browser.complaints.filter((text) => !text.includes("401"));
  },

  async "it finds the server and names the model"(browser) {
    await browser.until("document.querySelector('#status').dataset.state === 'ready'");
    assert.notEqual(await browser.value("document.querySelector('#model').textContent"), "…");
  },

  async "an answer streams, and its tokens are marked"(browser) {
    await browser.type("#max-tokens", "96");
    await browser.type("#prompt", `Repeat this line six times: ${LINE}`);
    await browser.press("Enter");
    await browser.until(`!${idle}`);
    // Part of it can be seen while the rest is still to come.
    await browser.until(`!${idle} && ${count(".assistant .token")} > 2`);
    await browser.until(idle, 120);
    assert.equal(await browser.value(count(".error")), 0, await browser.value(last(".error")));
    assert((await browser.value(last(".assistant .text"))).length > 20);
    const accepted = await browser.value(count(".assistant .token.accepted"));
    assert(accepted > 0, "nothing drafted was accepted");
    const colours = await browser.value(`["accepted", "corrected", "bonus", "target"].map((kind) => {
      const style = getComputedStyle(document.querySelector("#legend ." + kind));
      return style.color + style.textDecorationStyle + style.textDecorationLine;
    })`);
    assert.equal(new Set(colours).size, 4, colours.join());
    assert.match(await browser.value(last(".assistant .note")), /tokens\/s.*accepted.*a round/);
  },

  async "the charts have been drawn"(browser) {
    assert.match(await browser.value("document.querySelector('#chart-speed .line').getAttribute('d')"), /^M.*L/);
    assert(await browser.value(count("#chart-position .bar")) > 0);
    assert(await browser.value(count("#chart-rounds .bar")) > 1);
    assert.match(await browser.value("document.querySelector('#acceptance').textContent"), /\d %/);
  },

  async "the server's caches are shown"(browser) {
    await browser.until("/\\d %/.test(document.querySelector('#kv').textContent)");
    assert.match(await browser.value("document.querySelector('#gave-way').textContent"), /^\d+$/);
  },

  async "rejected tokens are shown when they are asked for"(browser) {
    const shown = "getComputedStyle(document.querySelector('#legend .of-rejected')).display";
    assert.equal(await browser.value(shown), "none");
    await browser.click("#show-rejected");
    assert.notEqual(await browser.value(shown), "none");
    assert.equal(await browser.value("getComputedStyle(document.querySelector('#legend del')).textDecorationLine"), "line-through");
  },

  async "markup that is said stays text"(browser) {
    const markup = "<img src=x onerror=alert(1)><b>bold</b>";
    await browser.type("#max-tokens", "4");
    await browser.type("#prompt", markup);
    await browser.click("#send");
    await browser.until(`!${idle} || ${count(".user")} > 1`);
    await browser.until(idle);
    assert.equal(await browser.value(last(".user .text")), markup);
    assert.equal(await browser.value(count("img, #log b")), 0);
  },

  async "an answer can be stopped, and the next one comes"(browser) {
    await browser.type("#max-tokens", "600");
    await browser.type("#prompt", "Write a very long story about a lighthouse.");
    await browser.press("Enter");
    const before = await browser.value(count(".assistant"));
    await browser.until(`!${idle} && ${last(".assistant .text")}.length > 5`);
    await browser.click("#stop");
    await browser.until(idle, 5);
    assert.equal(await browser.value(last(".assistant .note")), "stopped");
    await browser.click("#clear");
    assert.equal(await browser.value(count(".message")), 0, `of ${before}`);
    await browser.type("#max-tokens", "8");
    await browser.type("#prompt", "Hello");
    await browser.press("Enter");
    await browser.until(`${idle} && ${count(".assistant .note")} === 1`);
    assert.match(await browser.value(last(".assistant .note")), /8 tokens|seed/);
  },

  async "a refusal is told in the server's words"(browser) {
    await browser.type("#temperature", "-1");
    await browser.type("#prompt", "Too cold");
    // The field's own limit would keep the form from the server; scripts are not so kept, and neither are other clients.
    await browser.value("document.querySelector('#composer').noValidate = true");
    await browser.press("Enter");
    await browser.until(`${count(".error")} === 1`);
    assert.match(await browser.value(last(".error")), /temperature/);
    assert.equal(await browser.value("document.querySelector('#prompt').value"), "Too cold");
    await browser.type("#temperature", "0");
    browser.complaints = browser.complaints.filter((text) => !text.includes("400"));
  },

  async "the race ends with equal texts"(browser) {
    await browser.value("document.querySelector('#tab-chat').focus()");
    await browser.press("ArrowRight");
    assert(await browser.value("document.querySelector('#chat').hidden"));
    // A length that is given is drafted whatever this machine finds of its worth, and a seed makes what is drafted the same every time.
    await browser.type("#draft-len", "4");
    await browser.type("#seed", "7");
    for (const [order, temperature] of [["turns", "0"], ["both", "0.8"]]) {
      await browser.type("#temperature", temperature);
      await browser.type("#max-tokens", "64");
      await browser.value(`document.querySelector("#race-order").value = "${order}"`);
      await browser.type("#prompt", `Repeat this line six times: ${LINE}`);
      await browser.press("Enter");
      await browser.until(`!${idle}`);
      await browser.until(idle, 120);
      assert.match(await browser.value("document.querySelector('#verdict').textContent"), /texts are equal.*times the speed/);
      assert(await browser.value(count("#text-spec .accepted, #text-spec .corrected")) > 0, "nothing was drafted in the race");
      assert.equal(await browser.value(count("#text-plain .accepted")), 0);
      assert.equal(await browser.value("document.querySelector('#text-plain').textContent.length > 20"), true);
    }
    for (const field of ["#draft-len", "#seed"]) await browser.type(field, "");
  },

  async "it fits a phone"(browser) {
    for (const [width, height] of [[360, 740], [320, 568]]) {
      await browser.size(width, height, true);
      for (const tab of ["#tab-chat", "#tab-race"]) {
        await browser.click(tab);
        const wide = await browser.value("document.documentElement.scrollWidth");
        assert(wide <= width, `${tab}: ${wide} on ${width}`);
      }
    }
    await browser.size(1200, 800);
  },

  async "dark and light differ, and text can be read in both"(browser) {
    const grounds = new Set();
    for (const value of ["light", "dark"]) {
      await browser.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value }] });
      const kinds = await browser.value(`(() => {
        const luminance = (colour) => {
          const parts = colour.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255);
          const [r, g, b] = parts.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
          return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const page = getComputedStyle(document.body).backgroundColor;
        const ground = (element) => {
          const own = getComputedStyle(element).backgroundColor;
          return own === "rgba(0, 0, 0, 0)" ? (element === document.body ? page : ground(element.parentElement)) : own;
        };
        const elements = [...document.querySelectorAll("#legend .token, #legend li, .hint, .settings label, #send, header p, dt, [role=tab]")];
        return [page, elements.map((element) => {
          const [a, b] = [getComputedStyle(element).color, ground(element)].map(luminance).sort((x, y) => y - x);
          return [element.textContent.trim().slice(0, 20), (a + 0.05) / (b + 0.05)];
        })];
      })()`);
      grounds.add(kinds[0]);
      for (const [name, contrast] of kinds[1]) assert(contrast >= 4.5, `${value}: ${name} has a contrast of ${contrast.toFixed(2)}`);
    }
    assert.equal(grounds.size, 2);
  },

  async "every control has a name"(browser) {
    const nameless = await browser.value(`[...document.querySelectorAll("button, select, input, textarea")]
      .filter((element) => !(element.labels?.length > 0 || element.textContent.trim() || element.getAttribute("aria-label"))).map((element) => element.id)`);
    assert.deepEqual(nameless, []);
  },
};

async function picture(browser) {
  await browser.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: "light" }] });
  await browser.size(1040, 760);
  await browser.click("#tab-chat");
  await browser.click("#clear");
  await browser.type("#max-tokens", "160");
  await browser.type("#temperature", "0");
  await browser.type("#prompt", "Write a Rust function that adds two numbers, then the same function for floats, then for strings.");
  await browser.press("Enter");
  await browser.until(`!${idle}`);
  await browser.until(idle, 120);
  await browser.value("scrollTo(0, 0)");
  writeFileSync(screenshot, await browser.screenshot());
}

const { server, address, key } = await (process.env.SPEC_PAGE_ADDRESS ? { address: process.env.SPEC_PAGE_ADDRESS } : serve());
let failed = 0;
const browser = await Browser.start(chromium);
try {
  await browser.size(1200, 800);
  await browser.open(address);
  for (const [name, claim] of Object.entries(claims)) {
    try {
      await claim(browser);
      assert.deepEqual(browser.complaints, [], "the page complained");
      console.log(`ok      ${name}`);
    } catch (error) {
      failed += 1;
      browser.complaints = [];
      console.log(`FAILED  ${name}\n${error.stack}`);
      if (await browser.value(`!${idle}`)) await browser.press("Escape");
    }
  }
  if (screenshot) await picture(browser);
} finally {
  await browser.stop();
  server?.removeAllListeners("exit");
  server?.kill("SIGTERM");
}
process.exitCode = failed > 0 ? 1 : 0;
