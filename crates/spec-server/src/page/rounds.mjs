// What an answer's tokens tell of its rounds, while they stream.

/** Counts rounds, drafts and what was accepted. A round ends with a token of the model's own. */
export class Rounds {
  drafted = 0;
  accepted = 0;
  /** `{drafted, accepted}` by place in the draft. */
  positions = [];
  /** Tokens of each round that has ended. */
  sizes = [];
  #open = 0;

  /** Takes one entry of `spec_tokens`. */
  push({ source, rejected }) {
    if (source === "accepted") {
      this.#count(this.#open, true);
      this.#open += 1;
      return;
    }
    (rejected ?? []).forEach((_, behind) => this.#count(this.#open + behind, false));
    this.sizes.push(this.#open + 1);
    this.#open = 0;
  }

  #count(position, kept) {
    this.positions[position] ??= { drafted: 0, accepted: 0 };
    this.positions[position].drafted += 1;
    this.positions[position].accepted += kept ? 1 : 0;
    this.drafted += 1;
    this.accepted += kept ? 1 : 0;
  }

  get tokensPerRound() {
    return this.sizes.length === 0 ? 0 : this.sizes.reduce((sum, size) => sum + size, 0) / this.sizes.length;
  }
}

/** Tokens per second over the last second or so, from the times at which tokens came. */
export class Speed {
  #times = [];
  /** `[milliseconds since the first token, tokens per second]`. */
  points = [];

  push(now) {
    this.#times.push(now);
    const first = this.#times[0];
    const recent = this.#times.findLast((time) => now - time >= 1000) ?? first;
    const count = this.#times.length - 1 - this.#times.lastIndexOf(recent);
    if (now > recent) this.points.push([now - first, (count * 1000) / (now - recent)]);
  }
}

/** Index of the first character in which two texts differ; -1 when they are equal. */
export function firstDifference(one, other) {
  if (one === other) return -1;
  let at = 0;
  while (at < one.length && one[at] === other[at]) at += 1;
  return at;
}
