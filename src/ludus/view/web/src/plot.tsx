// Lines with bands, and cells, over two axes. Everything that is drawn leads to its rollouts.
import { type ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { tick } from "./format";

export interface PlotPoint {
  x: number; y: number; low?: number | null; high?: number | null; href?: string; said: string; size?: number; mark?: string;
}
export interface PlotLine { name: string; style: number; points: PlotPoint[] }

const LEFT = 46, RIGHT = 14, TOP = 12, BOTTOM = 42;
export const COLOURS = 8;

/** Round numbers between two ends, at most about `most` of them. */
export function ticksBetween(low: number, high: number, most: number, log = false): number[] {
  if (log) {
    const marks = [1, 2, 5].flatMap((step) => Array.from({ length: 13 }, (_, power) => step * 10 ** power)).sort((a, b) => a - b);
    const inside = marks.filter((mark) => mark >= low && mark <= high);
    const every = Math.ceil(inside.length / Math.max(most, 1));
    return inside.filter((_, at) => at % every === 0);
  }
  const span = high - low || 1, rough = span / Math.max(most, 1), unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * unit).find((size) => span / size <= most) ?? 10 * unit;
  const ticks: number[] = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) ticks.push(+at.toPrecision(12));
  return ticks;
}

/** The ends of the y axis. A wide band extends it by a quarter at most, and is cut there; not beyond `from` and `to` where all values lie between them. */
function limits(values: number[], ends: number[], from?: number, to?: number): [number, number] {
  const bottom = Math.min(...values, from ?? Infinity), top = Math.max(...values, to ?? -Infinity);
  const room = bottom === from && top === to ? 0 : (top - bottom || Infinity) / 4;
  return [Math.max(Math.min(bottom, ...ends), bottom - room), Math.min(Math.max(top, ...ends), top + room)];
}

/** The width of an element, which follows the window. */
function useWidth(): [preact.RefObject<HTMLDivElement | null>, number] {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const measure = () => setWidth(element.clientWidth);
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(element);
    return () => watch.disconnect();
  }, []);
  return [box, width];
}

/** `kind` lines draws bands and lines, `cells` circles whose area is their `size`. `from` and `to` widen the y axis. */
export function Plot({ lines, kind = "lines", x, y, label, log, from, to, height = 230, bands = true, format = tick }: {
  lines: PlotLine[]; kind?: "lines" | "cells"; x: string; y: string; label: string; log?: boolean; from?: number; to?: number;
  height?: number; bands?: boolean; format?: (value: number) => string;
}) {
  const [box, width] = useWidth();
  const points = lines.flatMap((line) => line.points);
  const ends = bands ? points.flatMap((point) => [point.low, point.high]).filter((value): value is number => typeof value === "number") : [];
  const xs = points.map((point) => point.x);
  let content: ComponentChildren = null;
  if (width > 0 && points.length) {
    let [bottom, top] = limits(points.map((point) => point.y), ends, from, to);
    if (bottom === top) [bottom, top] = [bottom - 0.5, top + 0.5];
    const inside = (value: number) => Math.min(Math.max(value, bottom), top);
    let left = Math.min(...xs), right = Math.max(...xs);
    if (left === right) [left, right] = log ? [left / 2, right * 2] : [left - 0.5, right + 0.5];
    const scale = (value: number) => (log ? Math.log(Math.max(value, 1e-9)) : value);
    const px = (value: number) => LEFT + 6 + ((scale(value) - scale(left)) / (scale(right) - scale(left))) * (width - LEFT - RIGHT - 12);
    const py = (value: number) => TOP + 5 + (1 - (value - bottom) / (top - bottom)) * (height - TOP - BOTTOM - 10);
    const path = (list: [number, number][]) => list.map(([a, b], at) => `${at ? "L" : "M"}${px(a).toFixed(1)} ${py(b).toFixed(1)}`).join("");
    const most = Math.max(...points.map((point) => point.size ?? 1));
    const reachable = points.length <= 80;
    content = (
      <svg width={width} height={height} role="group" aria-label={label}>
        <g class="grid-lines" aria-hidden="true">
          {ticksBetween(bottom, top, 5).map((value) => <g key={value}><line x1={LEFT} x2={width - RIGHT} y1={py(value)} y2={py(value)} /><text x={LEFT - 7} y={py(value) + 4} text-anchor="end">{tick(value)}</text></g>)}
          {ticksBetween(left, right, Math.max(2, Math.floor(width / 65)), log).map((value) => <g key={value}><line x1={px(value)} x2={px(value)} y1={TOP} y2={height - BOTTOM} /><text x={px(value)} y={height - BOTTOM + 17} text-anchor="middle">{format(value)}</text></g>)}
          <text x={(LEFT + width) / 2} y={height - 6} text-anchor="middle">{x}</text>
          <text transform={`translate(11 ${(TOP + height - BOTTOM) / 2}) rotate(-90)`} text-anchor="middle">{y}</text>
        </g>
        {kind === "lines" && bands && lines.map((line) => {
          const known = line.points.filter((point) => typeof point.low === "number" && typeof point.high === "number");
          return known.length > 1 && <path key={line.name} class={`band k${line.style % COLOURS}`} aria-hidden="true"
            d={`${path(known.map((point) => [point.x, inside(point.high as number)]))}L${path([...known].reverse().map((point) => [point.x, inside(point.low as number)])).slice(1)}Z`} />;
        })}
        {kind === "lines" && lines.map((line) => <path key={line.name} aria-hidden="true" d={path(line.points.map((point) => [point.x, point.y]))}
          class={`line k${line.style % COLOURS} d${Math.floor(line.style / COLOURS) % 3}`} />)}
        {lines.map((line) => line.points.map((point, at) => {
          const radius = kind === "cells" ? Math.max(2.5, 15 * Math.sqrt((point.size ?? 1) / most)) : points.length > 200 ? 2.2 : 3.4;
          const drawn = <>
            {point.mark && <line class="new-verifier" x1={px(point.x)} x2={px(point.x)} y1={TOP} y2={height - BOTTOM} />}
            <circle class={`k${line.style % COLOURS}`} cx={px(point.x)} cy={py(point.y)} r={radius} /><title>{point.said}</title></>;
          return point.href
            ? <a key={`${line.name} ${at}`} href={point.href} aria-label={point.said} tabIndex={reachable ? 0 : -1}>{drawn}</a>
            : <g key={`${line.name} ${at}`}>{drawn}</g>;
        }))}
      </svg>);
  }
  return <div class="plot" ref={box} style={{ minHeight: `${height}px` }}>{content}</div>;
}
