// Charts: small ones as SVG, and points and lines with uPlot.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { reward, tick, whole } from "./format";

export function Spark({ values, label }: { values: (number | null)[]; label: string }) {
  const known = values.filter((value): value is number => value !== null);
  if (known.length < 2) return <span class="quiet">–</span>;
  const low = Math.min(0, ...known), high = Math.max(1, ...known), span = high - low;
  let path = "";
  values.forEach((value, index) => {
    if (value === null) return;
    const x = (index / (values.length - 1)) * 98 + 1, y = 22 - ((value - low) / span) * 20;
    path += `${path ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
  });
  return (
    <svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label={label}>
      <path d={path} vector-effect="non-scaling-stroke" />
    </svg>
  );
}

export function Histogram({ low, high, counts, href }: {
  low: number; high: number; counts: number[]; href: (low: number, high: number, last: boolean) => string;
}) {
  const most = Math.max(...counts, 1), width = (high - low) / counts.length;
  return (
    <div>
      <div class="histogram">
        {counts.map((count, index) => {
          const from = low + index * width, to = from + width;
          const said = `${whole(count)} rollouts with a reward from ${reward(+from.toFixed(4))} to ${reward(+to.toFixed(4))}`;
          const kind = from >= 1 || (index === counts.length - 1 && high <= 1) ? "good" : index === 0 && from >= 0 ? "bad" : "partial";
          return count
            ? <a key={index} href={href(from, to, index === counts.length - 1)} title={said} aria-label={said}>
                <i class={kind} style={{ height: `${Math.max((count / most) * 100, 2)}%` }} /></a>
            : <span key={index} />;
        })}
      </div>
      <div class="axis"><span>{tick(low)}</span><span>{tick((low + high) / 2)}</span><span>{tick(high)}</span></div>
    </div>
  );
}

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export function Plot({ data, kind, x, y, label, onPick }: {
  data: [number[], (number | null)[]]; kind: "points" | "line"; x: string; y: string; label: string;
  onPick?: (index: number) => void;
}) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    let plot: uPlot | null = null;
    const draw = () => {
      plot?.destroy();
      const axis = (text: string, size: number): uPlot.Axis => ({
        stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false },
        label: text, labelSize: 18, labelFont: "12px system-ui", font: "11px system-ui", size,
      });
      const values = data[1].filter((value): value is number => value !== null);
      plot = new uPlot({
        width: element.clientWidth, height: 220, legend: { show: false },
        cursor: { show: onPick !== undefined, drag: { x: false, y: false } },
        scales: { x: { time: false, distr: kind === "points" ? 3 : 1, log: 10 },
          y: { range: [Math.min(0, ...values) - 0.04, Math.max(1, ...values) + 0.04] } },
        axes: [axis(x, 26), axis(y, 40)],
        series: [{}, kind === "points"
          ? { paths: () => null, points: { show: true, size: 5, fill: colour("--accent-soft"), stroke: colour("--accent"), width: 1 } }
          : { stroke: colour("--accent"), width: 2, points: { show: false }, spanGaps: true }],
      }, data as uPlot.AlignedData, element);
    };
    draw();
    const resized = new ResizeObserver(() => plot?.setSize({ width: element.clientWidth, height: 220 }));
    resized.observe(element);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", draw);
    addEventListener("themechange", draw);
    const clicked = () => { const at = plot?.cursor.idx; if (onPick && typeof at === "number") onPick(at); };
    element.addEventListener("click", clicked);
    return () => {
      resized.disconnect();
      dark.removeEventListener("change", draw);
      removeEventListener("themechange", draw);
      element.removeEventListener("click", clicked);
      plot?.destroy();
    };
  }, [JSON.stringify(data).length, data[0].length, kind]);
  return <div class="plot" ref={box} role="img" aria-label={label} />;
}
