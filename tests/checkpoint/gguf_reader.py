# SPDX-License-Identifier: Apache-2.0
"""A reader of GGUF files by the description of the format, with struct alone: keys, and tensors as lists of floats."""
import struct

VALUES = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
TEXT, ARRAY = 8, 9
F32, F16, Q5_0, Q8_0, Q4_K, Q6_K, BF16 = 0, 1, 6, 8, 12, 14, 30
BLOCKS = {F32: (1, 4), F16: (1, 2), BF16: (1, 2), Q5_0: (32, 22), Q8_0: (32, 34), Q4_K: (256, 144), Q6_K: (256, 210)}


class Reader:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        self.at = 0
        magic, version, tensors, keys = self.take("<4sIQQ")
        assert magic == b"GGUF" and version == 3, (magic, version)
        self.kinds, self.keys, self.tensors = {}, {}, {}
        for _ in range(keys):
            name, kind = self.text(), self.take("<I")[0]
            assert name not in self.keys, name
            self.kinds[name], self.keys[name] = kind, self.value(kind)
        found = [self.description() for _ in range(tensors)]
        begin, end = (self.at + 31) // 32 * 32, 0
        assert not any(self.data[self.at:begin])
        for name, shape, kind, offset in found:
            assert offset == (end + 31) // 32 * 32 and not any(self.data[begin + end:begin + offset]), name
            count = 1
            for size in shape:
                count *= size
            elements, size = BLOCKS[kind]
            assert shape[-1] % elements == 0, name
            end = offset + count // elements * size
            self.tensors[name] = (kind, shape, self.data[begin + offset:begin + end])
        assert len(self.data) == begin + (end + 31) // 32 * 32, "the file ends elsewhere"

    def take(self, form):
        values = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return values

    def text(self):
        length = self.take("<Q")[0]
        self.at += length
        return self.data[self.at - length:self.at].decode()

    def value(self, kind):
        if kind == TEXT:
            return self.text()
        if kind == ARRAY:
            inner, count = self.take("<IQ")
            return [self.value(inner) for _ in range(count)]
        return self.take(VALUES[kind])[0]

    def description(self):
        name, ndim = self.text(), self.take("<I")[0]
        shape = list(reversed(self.take(f"<{ndim}Q")))
        return name, shape, *self.take("<IQ")
