# SPDX-License-Identifier: Apache-2.0
"""Reads TensorBoard's event files, from the formats' descriptions alone: TFRecord framing with masked CRC-32C, protobuf's wire
format, and the field numbers of the messages."""

import struct
from pathlib import Path


def crc32c(data):
    """Bit by bit, by the reflected polynomial of RFC 3720."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    """The whole records of a file, and how many bytes are behind them. Raises ValueError for a record whose sums differ."""
    data, at, found = Path(path).read_bytes(), 0, []
    while at + 12 <= len(data):
        (length,), (head,) = struct.unpack_from("<Q", data, at), struct.unpack_from("<I", data, at + 8)
        if head != masked(data[at:at + 8]):
            raise ValueError(f"{path}: the sum of the length at byte {at}")
        if at + 12 + length + 4 > len(data):
            break
        body, (foot,) = data[at + 12:at + 12 + length], struct.unpack_from("<I", data, at + 12 + length)
        if foot != masked(body):
            raise ValueError(f"{path}: the sum of the record at byte {at}")
        found.append(body)
        at += 16 + length
    return found, len(data) - at


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    """A message's fields: number → its values, each an int or the bytes."""
    found, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        else:
            length, at = (8, at) if kind == 1 else (4, at) if kind == 5 else varint(data, at)
            value, at = data[at:at + length], at + length
        if kind not in (0, 1, 2, 5) or at > len(data):
            raise ValueError(f"no message: {data!r}")
        found.setdefault(key >> 3, []).append(value)
    return found


def double(value):
    return struct.unpack("<d", value)[0]


def doubles(value):
    return list(struct.unpack(f"<{len(value) // 8}d", value))


def read_value(message):
    """(tag, kind, value) of a Summary.Value."""
    v = fields(message)
    tag = v[1][0].decode()
    plugin = fields(fields(v[9][0])[1][0]) if 9 in v else {}
    if 2 in v:
        return tag, "scalar", struct.unpack("<f", v[2][0])[0]
    if 5 in v:
        h = fields(v[5][0])
        one = {name: double(h[number][0]) if number in h else 0.0
               for number, name in ((1, "min"), (2, "max"), (3, "num"), (4, "sum"), (5, "sum_squares"))}
        return tag, "histogram", {**one, "limit": doubles(h[6][0]), "count": doubles(h[7][0])}
    name = plugin[1][0].decode()
    if name == "text":
        tensor = fields(v[8][0])
        if tensor[1][0] != 7:
            raise ValueError(f"{tag}: a text of the type {tensor[1]}")
        return tag, "text", tensor[8][0].decode()
    return tag, name, fields(plugin[2][0])


def read_hparams(info):
    """SessionStartInfo's map."""
    found = {}
    for entry in info.get(1, []):
        pair = fields(entry)
        value = fields(pair[2][0])
        (number, (what,)), = value.items()
        found[pair[1][0].decode()] = double(what) if number == 2 else what.decode() if number == 3 else bool(what)
    return found


def read_graph(message):
    """name → (op, inputs, shape) of a GraphDef."""
    nodes = {}
    for one in fields(message)[1]:
        n = fields(one)
        attributes = {a[1][0].decode(): fields(a[2][0]) for a in map(fields, n[5])}
        shape = fields(fields(attributes["_output_shapes"][1][0])[7][0]).get(2, [])
        name = n[1][0].decode()
        if name in nodes:
            raise ValueError(f"two nodes of the name {name}")
        nodes[name] = (n[2][0].decode(), [i.decode() for i in n.get(3, [])], [fields(d).get(1, [0])[0] for d in shape])
    return nodes


def events(path):
    """Of a file: (step, kind, content) of each event; kind is "version", "graph", "start" or "values"."""
    found = []
    for record in records(path)[0]:
        e = fields(record)
        step = e.get(2, [0])[0]
        if not double(e[1][0]) > 1.7e9:
            raise ValueError(f"the time {e[1]}")
        if 3 in e:
            found.append((step, "version", e[3][0].decode()))
        elif 4 in e:
            found.append((step, "graph", read_graph(e[4][0])))
        elif 7 in e:
            found.append((step, "start", fields(e[7][0])[1][0]))
        else:
            found.append((step, "values", [read_value(v) for v in fields(e[5][0])[1]]))
    return found


def files(folder):
    """In the order in which TensorBoard reads them."""
    return sorted(Path(folder).glob("events.out.tfevents.*"))


def series(folder):
    """tag → [(step, value)] of all files of a folder, as they stand there."""
    found = {}
    for path in files(folder):
        for step, kind, content in events(path):
            for tag, _, value in content if kind == "values" else []:
                found.setdefault(tag, []).append((step, value))
    return found
