// The small charts. Lines and cells with axes are in plot.tsx.
import { reward, short, tick, whole } from "./format";

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
                <b aria-hidden="true">{short(count)}</b><i class={kind} style={{ height: `${Math.max((count / most) * 84, 2)}%` }} /></a>
            : <span key={index} />;
        })}
      </div>
      <div class="axis">{[0, 1, 2, 3, 4].map((part) => <span key={part}>{tick(+(low + (part / 4) * (high - low)).toFixed(4))}</span>)}</div>
    </div>
  );
}
