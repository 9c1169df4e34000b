// The names of runs, as pages learn them: the address has only keys.
import { useEffect, useState } from "preact/hooks";

const names = new Map<string, string>();
const watchers = new Set<() => void>();

export function learnName(key: string, name: string): void {
  if (names.get(key) === name) return;
  names.set(key, name);
  watchers.forEach((tell) => tell());
}

/** The name of a run; empty until a page has learnt it. */
export function useName(key: string | undefined): string {
  const now = () => (key && names.get(key)) || "";
  const [name, setName] = useState(now);
  useEffect(() => {
    const changed = () => setName(now());
    changed();
    watchers.add(changed);
    return () => { watchers.delete(changed); };
  }, [key]);
  return name;
}

/** The last two folders of a name. */
export const shortName = (name: string) => name.split("/").filter(Boolean).slice(-2).join("/");
