# What all tenants' actions do: touch memory, then compute.


def main(args):
    held = bytearray(args["bytes"])
    for place in range(0, len(held), 4096):
        held[place] = 1
    total = 0
    for number in range(args["rounds"]):
        total += number
    return {"total": total}
