"""What the objects of a program with several instruction sets may hold.

Kernel units: no weak, vague or unique symbol (the linker could give it to baseline code) and no initialiser (it would
run before the processor is asked). Baseline units and libraries: no register that the baseline lacks.
"""
import argparse
import re
import subprocess
import sys

NEWER_REGISTERS = re.compile(r"%(?:[yz]mm\d|k[0-7])\b")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def kernel_faults(path):
    for line in output("nm", "-C", path).splitlines():
        if re.search(r" [WVu] ", line):
            yield f"{path}: a symbol that may be merged with another unit's: {line}"
    if ".init_array" in output("readelf", "-SW", path):
        yield f"{path}: an initialiser"
    if not NEWER_REGISTERS.search(output("objdump", "-d", path)):
        yield f"{path}: no code of a newer instruction set: is this a kernel unit?"


def baseline_faults(path):
    function = "?"
    for line in output("objdump", "-d", "--no-show-raw-insn", path).splitlines():
        if line.endswith(">:"):
            function = line
        elif NEWER_REGISTERS.search(line):
            yield f"{path}: {function} {line.strip()}"
            return


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", nargs="+", default=[])
    parser.add_argument("--baseline", nargs="+", default=[])
    args = parser.parse_args()
    faults = [f for path in args.kernels for f in kernel_faults(path)]
    faults += [f for path in args.baseline for f in baseline_faults(path)]
    print("\n".join(faults) or f"{len(args.kernels)} kernel units, {len(args.baseline)} baseline files: no fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
