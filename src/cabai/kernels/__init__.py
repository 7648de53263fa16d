"""The formulas at the heart of cabai, as plain functions of plain records, which `cabai.compiling` compiles.

They are Python that Numba can compile: numbers, loops, the functions of `math`, the records of `cabai.state`. Where a
call is made once (a bound, a live study) they run as they stand, and nothing needs to be compiled or loaded.
"""
