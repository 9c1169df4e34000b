// Asks the server what has changed, while somebody looks, and loads again what a page shows.
import { useEffect, useRef, useState } from "preact/hooks";
import { ask, served, type Given } from "./api";

type Versions = Record<string, number>;
let versions: Versions = {};
let all = 0;
let returns = 0; // how often the viewer was lost and came back: then everything is asked again
let lost: string | null = null;
const listeners = new Set<() => void>();
const watchers = new Set<() => void>();

function setLost(now: string | null): void {
  if (now === lost) return;
  if (now === null) returns += 1;
  lost = now;
  watchers.forEach((tell) => tell());
  if (now === null) listeners.forEach((tell) => tell());
}

/** Why the viewer cannot be reached; null while it answers. */
export function useLost(): string | null {
  const [now, setNow] = useState(lost);
  useEffect(() => {
    const changed = () => setNow(lost);
    changed();
    watchers.add(changed);
    return () => { watchers.delete(changed); };
  }, []);
  return now;
}

async function look(): Promise<void> {
  if (!document.hidden && listeners.size) {
    try {
      const found = await ask<{ runs: Versions; version: number }>("changes");
      const sum = found.version + Object.values(found.runs).reduce((a, b) => a + b, 0);
      versions = found.runs;
      if (sum !== all) {
        all = sum;
        listeners.forEach((tell) => tell());
      }
      setLost(null);
    } catch (error) { setLost((error as Error).message); } // the next look may succeed
  }
  setTimeout(look, 1500);
}
if (served) void look();

/** Changes when the answers about a run, or about all runs, may be others. */
function useVersion(run: string | null, live: boolean): string {
  const now = () => `${returns} ${live ? (run ? versions[run] ?? 0 : all) : ""}`;
  const [version, setVersion] = useState(now);
  useEffect(() => {
    const changed = () => setVersion(now());
    changed();
    listeners.add(changed);
    return () => { listeners.delete(changed); };
  }, [run, live]);
  return version;
}

export interface Answer<T> { data: T | null; problem: string | null; loading: boolean; reload: () => void }

/** The answer to a question, asked again when the run has grown. The last answer to such a question stays while the
 * next one comes, but never the answer to another kind of question. */
export function useAnswer<T>(path: string, given: Given, run: string | null = null, live = true): Answer<T> {
  const version = useVersion(run, live);
  const [again, setAgain] = useState(0);
  const [state, setState] = useState<{ asked: string; path: string; data: T | null; problem: string | null }>(
    { asked: "", path, data: null, problem: null });
  const key = JSON.stringify([path, given]);
  const busy = useRef<AbortController | null>(null);
  useEffect(() => {
    busy.current?.abort();
    const control = new AbortController();
    busy.current = control;
    ask<T>(path, given, control.signal).then(
      (data) => { if (!control.signal.aborted) setState({ asked: key, path, data, problem: null }); },
      (error: Error) => {
        if (!control.signal.aborted) setState((old) => ({ data: old.path === path ? old.data : null, asked: key, path, problem: error.message }));
      },
    );
    return () => control.abort();
  }, [key, version, again]);
  const stale = Boolean((state.data as { stale?: boolean } | null)?.stale);
  useEffect(() => {
    if (!stale) return undefined;
    const timer = setTimeout(() => setAgain((n) => n + 1), 3000);
    return () => clearTimeout(timer);
  }, [state]);
  return { data: state.path === path ? state.data : null, problem: state.problem, loading: state.asked !== key, reload: () => setAgain((n) => n + 1) };
}
