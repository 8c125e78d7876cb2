"""Compares the summary of the conformance suite with the table of scenarios that pass in docs/mcp.md."""

import re
import sys

revision, log, page = sys.argv[1:]
summary = open(log).read().split("=== SUMMARY ===")[-1]
results = dict((name, sign == "✓") for sign, name in re.findall(r"^([✓✗]) ([\w-]+): ", summary, re.M))
row = next(line for line in open(page) if line.startswith(f"| {revision} |"))
promised = re.findall(r"`([\w-]+)`", row)
broken = [name for name in promised if not results.get(name)]
unnamed = [name for name, passed in results.items() if passed and name not in promised]
print(f"{revision}: {sum(results.values())} of {len(results)} scenarios pass")
print(f"  do not apply: {', '.join(name for name, passed in results.items() if not passed)}")
if unnamed:
    print(f"  pass, and are not in {page}: {', '.join(unnamed)}")
if broken or not results:
    sys.exit(f"these fail, and {page} says that they pass: {broken}")
