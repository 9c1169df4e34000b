"""How qualification writes Verilog: the rows' own modules, and modules that are wrong or try to speak for the bench."""

from __future__ import annotations

from typing import Any

settings = {"resources.seconds": 3.0}  # for modules that do not end


def answer(task: Any, text: str) -> str:
    """A module in the block where the verifier looks."""
    return f"Here it is.\n```verilog\n{text}\n```"


def oracle(task: Any) -> str:
    """The module of the row."""
    return answer(task, task.solution)


def preserving(task: Any) -> dict[str, Any]:
    """The module with a comment, directives, or a second module beside it."""
    return {
        "comment": answer(task, f"// simple\n/* and right */\n{task.solution}"),
        "directives": answer(task, f"`timescale 1ns/1ps\n`default_nettype wire\n{task.solution}"),
        "helper_module": answer(task, f"module helper(input a, output b); assign b = a; endmodule\n{task.solution}"),
    }


def breaking(task: Any) -> dict[str, Any]:
    """Modules without a function, and modules that print, end the simulation, read files or reach into the bench."""
    bench, solution = task.bench, task.solution
    ports = [f"input [{port.width - 1}:0] {port.name}" for port in bench.inputs]
    ports += [f"output [{port.width - 1}:0] {port.name}" for port in bench.outputs]
    head = f"module {bench.module}({', '.join(ports + ([f'input {bench.clock}'] if bench.clock else []))});"
    lines = " ".join(f'$display("{line}");' for line in bench.lines())
    zeros = " ".join(f"assign {port.name} = 0;" for port in bench.outputs)
    ones = " ".join(f"assign {port.name} = {port.width}'b1;" for port in bench.outputs)
    scripts = {
        "nothing": f"{head} endmodule",
        "zeros": f"{head} {zeros} endmodule",
        "ones": f"{head} {ones} endmodule",
        "prints_the_lines": f"{head} initial begin {lines} $finish; end endmodule",
        "prints_then_hangs": f"{head} initial begin {lines} while (1); end endmodule",
        "finishes": f"{head} initial $finish; endmodule",
        "stops": f"{head} initial $stop; endmodule",
        "runs_a_command": f'{head} initial $system("echo"); endmodule',
        "opens_a_file": f'{head} integer f; initial f = $fopen("bench.v"); endmodule',
        "reads_memory": f'{head} reg [7:0] m [0:9]; initial $readmemh("bench.v", m); endmodule',
        "includes": f'`include "bench.v"\n{solution}',
        "macro": f"`define END $finish\n{head} initial `END; endmodule",
        "escaped": f"{head} initial \\$finish ; endmodule",
        "loops": f"{head} {zeros} initial while (1); endmodule",
        "own_bench": f"{solution}\nmodule bench; initial $finish; endmodule",
        "not_closed": solution.replace("endmodule", ""),
        "other_name": solution.replace(f"module {bench.module}", "module other"),
        "empty": "",
    }
    return {**{name: answer(task, text) for name, text in scripts.items()}, "no_block": solution}
