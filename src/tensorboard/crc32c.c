// SPDX-License-Identifier: Apache-2.0
#include "tensorboard/crc32c.h"

/* The remainders of all numbers of four bits: index i is i times x^32, by the reflected polynomial
 * 0x82f63b78. */
static const uint32_t of_four_bits[16] = {
    0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
    0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};

uint32_t tsr_crc32c(const void *bytes, size_t length) {
  const unsigned char *at = bytes;
  uint32_t crc = ~UINT32_C(0);
  for (size_t i = 0; i < length; i++) {
    crc ^= at[i];
    crc = crc >> 4 ^ of_four_bits[crc & 15];
    crc = crc >> 4 ^ of_four_bits[crc & 15];
  }
  return ~crc;
}

uint32_t tsr_crc32c_masked(const void *bytes, size_t length) {
  uint32_t crc = tsr_crc32c(bytes, length);
  return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8);
}
