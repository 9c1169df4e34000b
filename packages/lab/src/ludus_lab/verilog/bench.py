"""The test bench of a row as Verilog, and the lines that it must print.

The bench drives the inputs and prints the outputs. It holds no expected value: those stay outside the sandbox.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

_NAME = r"^[a-z][a-z0-9_]{0,30}$"


class Port(BaseModel):
    """An input or an output of the module."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=_NAME)
    width: int = Field(1, ge=1, le=64)


class ModuleBench(BaseModel):
    """What drives the module: the values of the inputs at each step, and the expected values of the outputs."""

    model_config = ConfigDict(extra="forbid")

    module: str = Field(pattern=_NAME)
    inputs: list[Port] = Field(min_length=1)
    outputs: list[Port] = Field(min_length=1)
    clock: str | None = Field(None, pattern=_NAME)  #: rises once a step, after the inputs are set
    steps: list[list[int]] = Field(min_length=1, max_length=10_000)
    expected: list[list[int]]

    @model_validator(mode="after")
    def _fits(self) -> ModuleBench:
        if len(self.steps) != len(self.expected):
            raise ValueError("steps and expected must have one line for each step")
        for ports, table in ((self.inputs, self.steps), (self.outputs, self.expected)):
            for values in table:
                if len(values) != len(ports):
                    raise ValueError("a step needs one value for each port")
                if any(not 0 <= value < 1 << port.width for port, value in zip(ports, values, strict=True)):
                    raise ValueError("a value does not fit its port")
        return self

    @field_validator("module")
    @classmethod
    def _is_no_bench(cls, module: str) -> str:
        if module.startswith("bench"):
            raise ValueError("a module's name must not begin with bench")
        return module

    def lines(self) -> list[str]:
        """The lines that a right module makes the bench print."""
        widths = [port.width for port in self.outputs]
        return [
            " ".join(f"{value:0{width}b}" for value, width in zip(values, widths, strict=True))
            for values in self.expected
        ]

    def source(self, name: str) -> str:
        """The bench as a module of this name."""
        clocked = [f"reg {self.clock} = 0;"] if self.clock else []
        declared = [f"reg [{port.width - 1}:0] {port.name};" for port in self.inputs]
        declared += [f"wire [{port.width - 1}:0] {port.name};" for port in self.outputs]
        ports = [port.name for port in (*self.inputs, *self.outputs)] + ([self.clock] if self.clock else [])
        joined = ", ".join(f".{port}({port})" for port in ports)
        shown = f'$display("{" ".join(["%b"] * len(self.outputs))}", {", ".join(port.name for port in self.outputs)});'
        edge, back = (f"{self.clock} = 1; #1 ", f"{self.clock} = 0; #1 ") if self.clock else ("", "")
        steps = [
            "".join(f"{port.name} = {port.width}'d{value}; " for port, value in zip(self.inputs, values, strict=True))
            + f"#1 {edge}{shown} {back}"
            for values in self.steps
        ]
        body = "\n".join(
            [*clocked, *declared, f"{self.module} dut({joined});", "initial begin", *steps, "$finish(0); end"]
        )
        return f"`timescale 1ns/1ns\nmodule {name};\n{body}\nendmodule\n"
