// A browser without a window, driven over the DevTools protocol through a pair of pipes: no package and no port is needed.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

export class Browser {
  /** What the page complained of: uncaught exceptions, errors on the console, refusals of its content policy. */
  complaints = [];
  #waiting = new Map();
  #next = 1;
  #rest = "";

  static async start(program) {
    const browser = new Browser();
    browser.folder = mkdtempSync(join(tmpdir(), "spec-page-"));
    const flags = ["--headless=new", "--remote-debugging-pipe", `--user-data-dir=${browser.folder}`, "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb", "--disable-lcd-text"];
    // Containers run as root, where the sandbox refuses to start.
    if (process.getuid?.() === 0) flags.push("--no-sandbox");
    browser.process = spawn(program, flags, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
    browser.process.on("exit", (code) => browser.#fail(new Error(`the browser ended with ${code}`)));
    browser.process.on("error", (error) => browser.#fail(error));
    browser.process.stdio[4].setEncoding("utf8").on("data", (text) => browser.#read(text));
    const { targetId } = await browser.send("Target.createTarget", { url: "about:blank" });
    browser.session = (await browser.send("Target.attachToTarget", { targetId, flatten: true })).sessionId;
    for (const domain of ["Page", "Runtime", "Log"]) await browser.send(`${domain}.enable`);
    return browser;
  }

  send(method, params = {}) {
    const id = this.#next++;
    const message = { id, method, params };
    if (this.session) message.sessionId = this.session;
    this.process.stdio[3].write(`${JSON.stringify(message)}\0`);
    return new Promise((resolve, reject) => this.#waiting.set(id, { method, resolve, reject }));
  }

  #fail(error) {
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
  }

  #read(text) {
    const messages = (this.#rest + text).split("\0");
    this.#rest = messages.pop();
    for (const message of messages.map((json) => JSON.parse(json))) {
      const { id, result, error, method, params } = message;
      if (id !== undefined) {
        const asked = this.#waiting.get(id);
        this.#waiting.delete(id);
        if (error) asked?.reject(new Error(`${asked.method}: ${error.message}`));
        else asked?.resolve(result);
      } else if (method === "Runtime.exceptionThrown") {
        this.complaints.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
      } else if (method === "Runtime.consoleAPICalled" && ["error", "warning", "assert"].includes(params.type)) {
        this.complaints.push(params.args.map((part) => part.value ?? part.description).join(" "));
      } else if (method === "Log.entryAdded" && params.entry.level === "error") {
        this.complaints.push(`${params.entry.text} ${params.entry.url ?? ""}`.trim());
      }
    }
  }

  /** The value of an expression in the page. */
  async value(expression) {
    const { result, exceptionDetails } = await this.send("Runtime.evaluate", { expression, returnByValue: true, awaitPromise: true });
    if (exceptionDetails) throw new Error(`${expression}: ${exceptionDetails.exception?.description}`);
    return result.value;
  }

  /** Waits until an expression is true. */
  async until(expression, seconds = 60) {
    const end = Date.now() + seconds * 1000;
    while (!(await this.value(expression))) {
      if (Date.now() > end) throw new Error(`not true within ${seconds} s: ${expression}\n${await this.value("document.body.innerText")}`);
      await sleep(50);
    }
  }

  async open(address) {
    await this.send("Page.navigate", { url: address });
    await this.until("document.readyState === 'complete'");
  }

  /** A click with the mouse, at the middle of what a selector finds. */
  async click(selector) {
    const at = await this.value(`(() => {
      const element = document.querySelector(${JSON.stringify(selector)});
      element.scrollIntoView({ block: "center", behavior: "instant" });
      const box = element.getBoundingClientRect();
      return { x: box.x + box.width / 2, y: box.y + box.height / 2 };
    })()`);
    for (const type of ["mousePressed", "mouseReleased"]) {
      await this.send("Input.dispatchMouseEvent", { type, ...at, button: "left", clickCount: 1 });
    }
  }

  /** Replaces the content of a field by typing. */
  async type(selector, text) {
    await this.value(`document.querySelector(${JSON.stringify(selector)}).select()`);
    await this.value(`document.querySelector(${JSON.stringify(selector)}).focus()`);
    if (text === "") await this.press("Backspace");
    else await this.send("Input.insertText", { text });
  }

  async press(key) {
    const codes = { Enter: 13, Escape: 27, Backspace: 8, Tab: 9, ArrowLeft: 37, ArrowRight: 39 };
    const parameters = { key, code: key, windowsVirtualKeyCode: codes[key] };
    if (key === "Enter") parameters.text = "\r";
    await this.send("Input.dispatchKeyEvent", { type: "keyDown", ...parameters });
    await this.send("Input.dispatchKeyEvent", { type: "keyUp", ...parameters });
  }

  async size(width, height, mobile = false) {
    await this.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile });
  }

  async screenshot() {
    return Buffer.from((await this.send("Page.captureScreenshot", { format: "png" })).data, "base64");
  }

  async stop() {
    const ended = new Promise((done) => this.process.once("exit", done));
    this.session = undefined;
    this.send("Browser.close").catch(() => {});
    await Promise.race([ended, sleep(5000)]);
    this.process.kill("SIGKILL");
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5 });
  }
}
