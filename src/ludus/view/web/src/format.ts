// Numbers and times as people read them.

export function whole(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en-US");
}

export function short(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  for (const [size, mark] of [[1e9, "B"], [1e6, "M"], [1e3, "k"]] as const) {
    if (Math.abs(value) >= size) return `${(value / size).toFixed(Math.abs(value) >= size * 100 ? 0 : 1)}${mark}`;
  }
  return Number.isInteger(value) ? String(value) : value.toFixed(2);
}

/** Rollouts a second, or a minute where that is a small number. */
export function speed(perSecond: number | null): string {
  if (!perSecond) return "–";
  const [value, unit] = perSecond >= 0.5 ? [perSecond, "s"] : [perSecond * 60, "min"];
  return `${value >= 1000 ? short(value) : value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2).replace(/\.0+$/, "")} rollouts/${unit}`;
}

export function reward(value: unknown): string {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value);
  return Math.abs(value) >= 1e6 || (value !== 0 && Math.abs(value) < 0.001) ? value.toExponential(2) : value.toFixed(3);
}

/** A number beside an axis: no more digits than it needs. */
export function tick(value: number): string {
  const shown = reward(value);
  return /^-?\d+\.\d+$/.test(shown) ? String(Number(shown)) : shown;
}

export function percent(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : `${(value * 100).toFixed(value > 0 && value < 0.1 ? 1 : 0)} %`;
}

export function seconds(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0 s";
  if (value < 0.001) return `${(value * 1e6).toFixed(0)} µs`;
  if (value < 1) return `${(value * 1e3).toFixed(value < 0.01 ? 1 : 0)} ms`;
  if (value < 60) return `${value.toFixed(value < 10 ? 1 : 0)} s`;
  if (value < 3600) return twoUnits(Math.round(value), 60, "min", "s");
  if (value < 86400) return twoUnits(Math.round(value / 60), 60, "h", "min");
  return `${(value / 86400).toFixed(1)} days`;
}

function twoUnits(value: number, size: number, large: string, small: string): string {
  return `${Math.floor(value / size)} ${large}${value % size ? ` ${value % size} ${small}` : ""}`;
}

export function bytes(value: number): string {
  for (const [size, mark] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]] as const) {
    if (value >= size) return `${(value / size).toFixed(1)} ${mark}`;
  }
  return `${value} B`;
}

export function when(value: string | null): string {
  if (!value) return "";
  const date = new Date(value);
  return Number.isNaN(date.getTime()) ? "" : date.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${whole(count)} ${count === 1 ? one : many}`;
}
