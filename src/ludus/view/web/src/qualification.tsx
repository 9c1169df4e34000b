// The qualification card of an environment: whether its verdicts can be trusted.
import type { EnvironmentCard, Json } from "./api";
import { percent, reward, whole } from "./format";
import { JsonView, visible } from "./text";
import { Pairs } from "./ui";

const KINDS: Record<string, string> = { trusted: "good", "not shown": "partial", strict: "partial", unsound: "failed", broken: "failed" };
const text = (value: unknown, most = 300) => visible(typeof value === "string" ? value.slice(0, most) : JSON.stringify(value)?.slice(0, most) ?? "");
const rate = (value: unknown) => (typeof value === "number" ? percent(value) : "unknown");

const SAID: Record<string, string> = { trusted: "trusted", "not shown": "trust not shown", strict: "too strict", unsound: "unsound", broken: "broken" };

export function TrustPill({ card, of }: { card: Json; of?: string }) {
  const verdict = String(card.verdict ?? (card.passed === true ? "trusted" : card.passed === false ? "broken" : "unknown"));
  return <span class={`pill ${KINDS[verdict] ?? "none"}`}>{of}{text(SAID[verdict] ?? verdict, 40)}</span>;
}

export function Qualification({ given }: { given: EnvironmentCard }) {
  const { card } = given;
  if (!card) {
    return <><p class="quiet">Nobody has qualified it for this run. This command tries to cheat its verifier and writes the result beside the run:</p>
      <pre class="wraps">{visible(given.command)}</pre></>;
  }
  const checks: Json[] = Array.isArray(card.checks) ? card.checks.filter((each: Json) => each && typeof each === "object").slice(0, 60) : [];
  const failed = checks.filter((each) => each.status === "failed"), skipped = checks.filter((each) => each.status === "skipped");
  const findings = checks.filter((each) => each.status === "look");
  return (
    <>
      <p><TrustPill card={card} /> <span class="quiet small">{text(given.from)}</span></p>
      <Pairs rows={[
        ["right answers score", typeof card.oracle === "number" ? reward(card.oracle) : "unknown"],
        ["best cheat scores", card.best_exploit && typeof card.best_exploit.reward === "number" ? <>{reward(card.best_exploit.reward)} <span class="quiet">{text(card.best_exploit.best, 60)}</span></> : "none tried"],
        ["wrong, but rewarded", rate(card.false_positive_rate)], ["right, but refused", rate(card.false_negative_rate)],
        ["checked on", typeof card.rows === "number" ? `${whole(card.rows)} rows` : "unknown"],
        ["checks", `${checks.length - failed.length - skipped.length - findings.length} passed, ${failed.length} failed, ${skipped.length} skipped${findings.length ? `, ${findings.length} to look at` : ""}`]]} />
      {failed.length > 0 && <ul class="why failed-text">{failed.map((each, index) => <li key={index}><b>{text(each.name, 80)}</b> {text(each.reason)}</li>)}</ul>}
      {findings.length > 0 && <ul class="why masked-text">{findings.map((each, index) => <li key={index}><b>{text(each.name, 80)}</b> {text(each.reason)}</li>)}</ul>}
      {skipped.length > 0 && <ul class="why quiet">{skipped.map((each, index) => <li key={index}><b>{text(each.name, 80)}</b> {text(each.reason)}</li>)}</ul>}
      <details class="offered"><summary>The whole card</summary><JsonView value={card} /></details>
    </>
  );
}
