"""Write Verilog modules, judged by simulation."""
