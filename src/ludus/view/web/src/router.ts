// Addresses are behind the #, so that they work in an exported file too: #/run/KEY/rollout/12?tab=tokens
import { useLayoutEffect, useState } from "preact/hooks";

export interface Place { path: string[]; given: Record<string, string> }

export function here(): Place {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const given: Record<string, string> = {};
  new URLSearchParams(query || "").forEach((value, name) => { given[name] = value; });
  const parts = path.split("/").filter(Boolean).map((part) => {
    try { return decodeURIComponent(part); } catch { return part; }
  });
  return { path: parts, given };
}

export function link(path: (string | number)[], given: Record<string, string | number | undefined> = {}): string {
  const kept = new URLSearchParams();
  for (const [name, value] of Object.entries(given)) if (value !== undefined && value !== "") kept.set(name, String(value));
  const query = kept.toString();
  return `#/${path.map(encodeURIComponent).join("/")}${query ? `?${query}` : ""}`;
}

export function go(to: string, replace = false): void {
  if (replace) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

export function usePlace(): Place {
  const [place, setPlace] = useState(here);
  useLayoutEffect(() => {
    const changed = () => setPlace(here());
    addEventListener("hashchange", changed);
    addEventListener("popstate", changed);
    return () => { removeEventListener("hashchange", changed); removeEventListener("popstate", changed); };
  }, []);
  return place;
}
