"""`gpucast sweep`: many cases from one spec, on one machine or a Ray cluster. docs/reference/sweep.md describes it.

documents   a spec's text as plain data, and the line and column of each part
conditions  comparisons such as "--batch * --seq <= 65536", without eval()
spec        what the spec says, checked
cases       the cases of a spec one by one, and each one's job
judge       jobs to rows: memory and step time on each card, on the machine that captured
engine      where jobs run
child       a process of its own for Ray's driver
study       an Optuna study over the same cases
journal     rows on disk as they come: what makes a sweep resumable
tables      CSV and Parquet of a journal
summary     counts, the fastest row of each card, reasons of failures
page        an HTML page of a journal
main        the command
"""
