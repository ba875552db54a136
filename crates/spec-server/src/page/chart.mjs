// Small charts: shapes in an SVG element of 300 by 80 units.

const WIDTH = 300;
const HEIGHT = 80;
const LEFT = 30;
const BOTTOM = 66;
const TOP = 8;

function add(svg, name, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  svg.append(element);
  return element;
}

function axes(svg, top, left, right) {
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  add(svg, "path", { class: "axis", d: `M${LEFT} ${TOP}V${BOTTOM}H${WIDTH}` });
  add(svg, "text", { x: LEFT - 4, y: TOP + 8, "text-anchor": "end" }, top);
  add(svg, "text", { x: LEFT - 4, y: BOTTOM, "text-anchor": "end" }, "0");
  add(svg, "text", { x: LEFT, y: HEIGHT - 3 }, left);
  add(svg, "text", { x: WIDTH, y: HEIGHT - 3, "text-anchor": "end" }, right);
}

/** A round number not below `value`: 1, 2 or 5 times a power of ten. */
export function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}

/** A line through `[x, y]` points, x in milliseconds. */
export function line(svg, points) {
  const top = ceiling(Math.max(...points.map(([, y]) => y), 0));
  const last = points.at(-1)?.[0] ?? 0;
  axes(svg, String(top), "0 s", `${(last / 1000).toFixed(1)} s`);
  const place = ([x, y]) => {
    const across = LEFT + (last > 0 ? x / last : 0) * (WIDTH - LEFT);
    return `${across.toFixed(1)} ${(BOTTOM - (y / top) * (BOTTOM - TOP)).toFixed(1)}`;
  };
  if (points.length > 1) add(svg, "path", { class: "line", d: `M${points.map(place).join("L")}` });
}

/** Bars of `{value, of, label}`: `value` filled, and the outline of `of` where it is more. */
export function bars(svg, entries, { top, left, right }) {
  axes(svg, top.label, left, right);
  const step = (WIDTH - LEFT) / Math.max(entries.length, 1);
  const gap = Math.min(step * 0.2, 3);
  entries.forEach(({ value, of, label }, index) => {
    const shape = (amount, name) => {
      const height = Math.min(amount / top.value, 1) * (BOTTOM - TOP);
      const bar = add(svg, "rect", {
        class: name,
        x: (LEFT + index * step + gap / 2).toFixed(2),
        y: (BOTTOM - height).toFixed(2),
        width: Math.max(step - gap, 0.5).toFixed(2),
        height: height.toFixed(2),
      });
      const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
      title.textContent = label;
      bar.append(title);
    };
    if (of > value) shape(of, "rest");
    shape(value, "bar");
  });
}
