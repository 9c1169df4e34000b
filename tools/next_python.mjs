// Compiles every Python file of a folder with the Python of a pyodide package, warnings as errors, and looks for every name
// of the standard library that the files use:
//
//     node tools/next_python.mjs build/node_modules/pyodide src
//
// This finds removed modules, removed names and new warnings in a Python that the machine does not have. Nothing is run:
// our dependencies are not built for WebAssembly.
import { execFileSync } from "node:child_process";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, sources] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(resolve(folder, "pyodide.mjs")));
const python = await loadPyodide();
python.mountNodeFS("/sources", resolve(sources));
// A module that was removed is in the standard library of the machine's own Python only.
const names = execFileSync("python3", ["-c", "import sys; print(*sys.stdlib_module_names)"], { encoding: "utf8" });
python.globals.set("known_today", names);
const failed = python.runPython(`
import ast, importlib, pathlib, sys, warnings

# What WebAssembly has no operating system for.
PLATFORM = {"fcntl", "os", "pty", "readline", "resource", "signal", "socket", "termios", "threading", "tty"}
STANDARD = {*known_today.split(), *sys.stdlib_module_names} - PLATFORM
used, problems, files = {}, [], 0


def use(module, name, place):
    if module.partition(".")[0] in STANDARD:
        used.setdefault((module, name), place)


warnings.simplefilter("error")
for path in sorted(pathlib.Path("/sources").rglob("*.py")):
    files += 1
    try:
        tree = ast.parse(path.read_text(), str(path))
        compile(tree, str(path), "exec")
    except Exception as error:
        problems.append(f"{path}: {error}")
        continue
    imported = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                use(each.name, "", path)
                imported[each.asname or each.name.partition(".")[0]] = each.name if each.asname else each.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for each in node.names:
                use(node.module, each.name, path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in imported:
            use(imported[node.value.id], node.attr, path)
for (module, name), place in sorted(used.items()):
    try:
        found = importlib.import_module(module)
        if name and name != "*" and not hasattr(found, name):
            importlib.import_module(f"{module}.{name}")
    except Exception as error:
        problems.append(f"{place}: {module} {name}: {error}")
print(*problems, sep="\\n")
print(f"Python {sys.version.split()[0]}: {files} files compiled, {len(used)} names looked for, {len(problems)} problems")
len(problems)
`);
process.exit(failed ? 1 : 0);
