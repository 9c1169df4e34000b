// The small parts that all pages share.
import { Fragment, type ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { reward as rewardText, percent, whole } from "./format";
import type { Counts } from "./api";

export function Card({ title, children, wide, note, id }: {
  title: string; children: ComponentChildren; wide?: boolean; note?: ComponentChildren; id?: string;
}) {
  return (
    <section class={wide ? "card wide" : "card"} aria-label={title} id={id}>
      <header><h2>{title}</h2>{note && <span class="quiet">{note}</span>}</header>
      {children}
    </section>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return <div class="empty"><p class="empty-title">{title}</p>{children && <div>{children}</div>}</div>;
}

export function Problem({ text }: { text: string }) {
  return <p class="problem" role="alert">{text}</p>;
}

export function Loading() {
  return <p class="quiet loading" aria-live="polite">Loading…</p>;
}

/** How a rollout ended, by colour and by word. */
export function Outcome({ outcome, reward, small }: { outcome: string; reward: number | null; small?: boolean }) {
  if (outcome === "ended_early") return <span class="pill none">ended early</span>;
  if (outcome === "failed") return <span class="pill failed">{small ? "failed" : "failed, no reward"}</span>;
  const kind = outcome === "masked" ? "masked" : rewardClass(reward);
  return <span class={`pill ${kind}`}>{outcome === "masked" ? "masked " : small ? "" : "reward "}{rewardText(reward)}</span>;
}

export function rewardClass(reward: number | null): string {
  if (reward === null) return "none";
  return reward >= 1 ? "good" : reward > 0 ? "partial" : "bad";
}

/** Completed, masked and failed as one bar, of the expected total where it is known. */
export function CountBar({ counts, total }: { counts: Counts; total: number | null }) {
  const all = Math.max(total ?? 0, counts.dispatched, 1);
  const said = `${whole(counts.completed)} completed, ${whole(counts.masked)} masked, ${whole(counts.failed)} failed` +
    (counts.ended_early ? `, ${whole(counts.ended_early)} ended early` : "") +
    (total ? ` of ${whole(total)}` : "");
  return (
    <span class="count-bar" role="img" aria-label={said} title={said}>
      <i class="completed" style={{ width: `${(counts.completed / all) * 100}%` }} />
      <i class="masked" style={{ width: `${(counts.masked / all) * 100}%` }} />
      <i class="failed" style={{ width: `${(counts.failed / all) * 100}%` }} />
      <i class="ended" style={{ width: `${(counts.ended_early / all) * 100}%` }} />
    </span>
  );
}

export interface Bar { name: ComponentChildren; value: number; shown?: string; kind?: string; href?: string; title?: string; red?: number }

/** Bars beside their names, with the numbers as text. */
/** Bars of counts. One that says its share is as long as its share; others are on the scale of the largest, or of `most`. */
export function Bars({ rows, empty, most: longest }: { rows: Bar[]; empty: string; most?: number }) {
  const [all, setAll] = useState(false);
  if (!rows.length) return <p class="quiet">{empty}</p>;
  const sum = rows.reduce((a, row) => a + row.value, 0);
  const most = longest ?? (rows.some((row) => row.shown) ? Math.max(...rows.map((row) => row.value), 1e-12) : sum || 1);
  return (
    <>
      <ul class="bars">
        {(all ? rows : rows.slice(0, 8)).map((row, index) => (
          <li key={index} title={row.title}>
            <span class="bar-name">{row.href ? <a href={row.href}>{row.name}</a> : row.name}</span>
            <span class="bar-track"><i class={row.kind ?? ""} style={{ width: `${Math.max((row.value / most) * 100, 0.5)}%` }}>
              {row.red ? <i class="failed" style={{ width: `${Math.max(row.red * 100, 1)}%` }} /> : null}</i></span>
            <span class="bar-value">{row.shown ?? `${whole(row.value)}${sum ? ` · ${percent(row.value / sum)}` : ""}`}</span>
          </li>
        ))}
      </ul>
      {rows.length > 8 && (
        <button type="button" class="more" onClick={() => setAll(!all)}>{all ? "Show fewer" : `Show all ${rows.length}`}</button>
      )}
    </>
  );
}

export function Tabs({ tabs, now, onPick, label }: {
  tabs: [string, ComponentChildren][]; now: string; onPick: (tab: string) => void; label: string;
}) {
  const step = (event: KeyboardEvent, at: number) => {
    const move = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!move) return;
    const next = (at + move + tabs.length) % tabs.length;
    onPick(tabs[next][0]);
    ((event.currentTarget as HTMLElement).parentElement?.children[next] as HTMLElement | undefined)?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label={label}>
      {tabs.map(([name, shown], index) => (
        <button key={name} type="button" role="tab" aria-selected={name === now} tabIndex={name === now ? 0 : -1}
          id={`tab-${name}`} aria-controls="panel" onClick={() => onPick(name)} onKeyDown={(event) => step(event, index)}>
          {shown}
        </button>
      ))}
    </div>
  );
}

export function Stat({ name, children, note }: { name: string; children: ComponentChildren; note?: ComponentChildren }) {
  return <div class="stat"><dt>{breakable(name)}</dt><dd>{children}{note && <small>{note}</small>}</dd></div>;
}

/** A name that may break after an underscore, and not inside a word. */
const breakable = (name: string) => name.split(/(?<=_)/).map((part, at) => <Fragment key={at}>{at > 0 && <wbr />}{part}</Fragment>);

export function Pairs({ rows }: { rows: [string, ComponentChildren][] }) {
  return <dl class="pairs">{rows.map(([name, value]) => <div key={name}><dt>{breakable(name)}</dt><dd>{value}</dd></div>)}</dl>;
}
