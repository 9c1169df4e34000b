// The keyboard: one key each, never while somebody types.
import { useLayoutEffect, useRef } from "preact/hooks";

export function isTyping(target: EventTarget | null): boolean {
  const element = target as HTMLElement | null;
  if (!element || !element.tagName) return false;
  if (element.tagName === "INPUT") return !["checkbox", "range", "button"].includes((element as HTMLInputElement).type);
  return ["TEXTAREA", "SELECT"].includes(element.tagName) || element.isContentEditable;
}

/** Keys and what they do. They work as soon as the page stands, before it is painted, and do what its last render says. */
export function useKeys(keys: Record<string, () => void>): void {
  const latest = useRef(keys);
  latest.current = keys;
  useLayoutEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || document.querySelector("dialog[open]")) return;
      const element = event.target as HTMLElement;
      if (event.key === "Enter" && ["A", "BUTTON", "INPUT", "SUMMARY"].includes(element.tagName)) return;
      const run = latest.current[event.key];
      if (run) { event.preventDefault(); run(); }
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}
