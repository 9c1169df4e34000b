// A digest of everything that the built page is made of. A test computes it again and compares.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";

const FILES = ["index.html", "package.json", "package-lock.json", "sources.js", "tsconfig.json", "vite.config.ts"];

function below(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    return entry.isDirectory() ? below(path) : [path];
  });
}

export function digest(root) {
  const inside = ["src", "public"].flatMap((folder) => below(join(root, folder)));
  const names = [...FILES, ...inside.map((path) => relative(root, path).split("\\").join("/"))].sort();
  const hash = createHash("sha256");
  for (const name of names) {
    const content = createHash("sha256").update(readFileSync(join(root, name))).digest("hex");
    hash.update(`${content}  ${name}\n`);
  }
  return hash.digest("hex");
}
