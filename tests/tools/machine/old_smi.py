"""nvidia-smi of an older driver: no XML that can be read, other names of fields, one field at a time refused."""

import sys

if "-x" in sys.argv:
    sys.exit("Unable to make the report")
asked = next(a for a in sys.argv if a.startswith("--query-gpu=")).removeprefix("--query-gpu=").split(",")
for field in asked:
    if field.startswith("clocks_event_reasons") or field == "gpu_recovery_action":
        sys.stdout.write(f'Field "{field}" is not a valid field to query.\n')
        sys.exit(2)
known = {"name": "Tesla V100", "clocks_throttle_reasons.hw_slowdown": "Active", "memory.used": "12"}
for index in range(2):
    sys.stdout.write(", ".join(known.get(f, str(index) if f == "index" else "[N/A]") for f in asked) + "\n")
