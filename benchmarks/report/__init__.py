"""tmp"""
from __future__ import annotations
def print_machine(machine): print(machine)
def write(results, machine, plan, folder, here):
    for key, values in results: print(*key, *[f"{v:.4g}" for v in values])
    return folder
