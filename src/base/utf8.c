// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"
#include <assert.h>
#include <string.h>

int tsr_utf8_next(const char *text, size_t length, uint32_t *ret_code) {
  static const uint32_t lowest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (!length) return 0;
  const unsigned char *bytes = (const unsigned char *)text;
  if (bytes[0] < 0x80) {
    *ret_code = bytes[0];
    return 1;
  }
  int count = bytes[0] >= 0xf0 ? 4 : bytes[0] >= 0xe0 ? 3 : 2;
  if (bytes[0] < 0xc2 || bytes[0] > 0xf4 || length < (size_t)count) return 0;
  uint32_t code = bytes[0] & (0x7fu >> count);
  for (int i = 1; i < count; i++) {
    if ((bytes[i] & 0xc0) != 0x80) return 0;
    code = code << 6 | (bytes[i] & 0x3f);
  }
  if (code < lowest[count] || code >= TSR_UTF8_CODES || (code >= 0xd800 && code < 0xe000)) return 0;
  *ret_code = code;
  return count;
}

size_t tsr_utf8_valid(const char *text, size_t length) {
  size_t at = 0;
  while (at < length) {
    uint64_t eight = UINT64_MAX;
    if (at + 8 <= length) memcpy(&eight, text + at, 8);
    if (!(eight & 0x8080808080808080u)) {
      at += 8;
      continue;
    }
    uint32_t code;
    int bytes = tsr_utf8_next(text + at, length - at, &code);
    if (!bytes) break;
    at += (size_t)bytes;
  }
  return at;
}

size_t tsr_utf8_broken(const char *text, size_t length, bool *ret_is_open) {
  const unsigned char *bytes = (const unsigned char *)text;
  unsigned lead = bytes[0];
  bool is_lead = lead >= 0xc2 && lead <= 0xf4;
  unsigned low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  unsigned high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  size_t whole = !is_lead ? 1 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2, count = 1;
  for (; count < whole && count < length; count++) {
    if (bytes[count] < low || bytes[count] > high) break;
    low = 0x80, high = 0xbf;
  }
  if (ret_is_open) *ret_is_open = count == length && count < whole;
  return count;
}

bool tsr_utf8_is_space(uint32_t code) {
  return (code >= 9 && code <= 13) || code == ' ' || code == 0x85 || code == 0xa0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
         code == 0x202f || code == 0x205f || code == 0x3000;
}

int tsr_utf8_put(uint32_t code, char ret_bytes[TSR_UTF8_BYTES_MAX]) {
  assert(code < TSR_UTF8_CODES);
  if (code < 0x80) {
    ret_bytes[0] = (char)code;
    return 1;
  }
  int count = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (int i = count - 1; i > 0; i--, code >>= 6) ret_bytes[i] = (char)(0x80 | (code & 0x3f));
  ret_bytes[0] = (char)((0xf00 >> count & 0xff) | code);
  return count;
}
